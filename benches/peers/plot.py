#!/usr/bin/env python3
"""Draws how the costs grow with the number of resources, from the raw numbers: plot.py FILE PICTURE.svg."""

import json
import math
import statistics
import sys

WIDTH, HEIGHT = 860, 330
# Of each of the two charts: where its axes cross, and their lengths.
LEFT, TOP, WIDE, HIGH, APART = 62, 44, 240, 230, 430
COUNTS = (1_000, 50_000)
# Client, and colour: readable on white and on black.
LINES = [
    ("xdskit", "#d9480f"),
    ("xdskit delta", "#b8860b"),
    ("grpc-go", "#1c8fc4"),
    ("xds-client", "#8a63d2"),
]
CHARTS = [
    ("start to all delivered", lambda run: run["start"] / 1e9, (0.001, 1000), lambda v: f"{v:g} s"),
    ("peak memory", lambda run: run["peak"] / 1e6, (10, 1000), lambda v: f"{v:,.0f} MB"),
]


def main():
    with open(sys.argv[1], encoding="utf-8") as lines:
        _machine, *runs = [json.loads(line) for line in lines]
    parts = [HEAD]
    for place, (title, value, limits, unit) in enumerate(CHARTS):
        parts += chart(Chart(LEFT + place * APART, limits), title, unit)
        ends = []
        for client, colour in LINES:
            points = [(count, median_of(runs, client, count, value)) for count in counts_of(runs)]
            points = [(count, median) for count, median in points if median is not None]
            if points:
                parts += line(Chart(LEFT + place * APART, limits), points, colour)
                ends.append((client, colour, points[-1]))
        parts += labels(Chart(LEFT + place * APART, limits), ends)
    parts.append("</svg>\n")
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        out.write("\n".join(parts))


def counts_of(runs):
    return sorted({run["count"] for run in runs})


def median_of(runs, client, count, value):
    """None where the client did not finish."""
    finished = [run for run in runs if (run["client"], run["count"]) == (client, count) and "unfinished" not in run]
    return statistics.median(value(run) for run in finished) if finished else None


class Chart:
    """A chart of two logarithmic axes."""

    def __init__(self, left, limits):
        self.left, self.limits = left, limits

    def x(self, count):
        return self.left + WIDE * part(count, COUNTS)

    def y(self, value):
        return TOP + HIGH * (1 - part(value, self.limits))


def part(value, limits):
    low, high = (math.log10(limit) for limit in limits)
    return (math.log10(value) - low) / (high - low)


def chart(axes, title, unit):
    yield f'<text class="title" x="{axes.left}" y="{TOP - 18}">{title}</text>'
    for power in range(round(math.log10(axes.limits[0])), round(math.log10(axes.limits[1])) + 1):
        y = axes.y(10**power)
        yield f'<path class="grid" d="M{axes.left} {y:.1f}h{WIDE}"/>'
        yield f'<text x="{axes.left - 6}" y="{y + 4:.1f}" text-anchor="end">{unit(10.0**power)}</text>'
    for count in (1_000, 10_000, 50_000):
        yield f'<path class="grid" d="M{axes.x(count):.1f} {TOP}v{HIGH}"/>'
        yield f'<text x="{axes.x(count):.1f}" y="{TOP + HIGH + 18}" text-anchor="middle">{count:,}</text>'
    middle = axes.left + WIDE / 2
    yield f'<text x="{middle}" y="{TOP + HIGH + 38}" text-anchor="middle">clusters, and as many assignments</text>'


def line(axes, points, colour):
    path = " ".join(f"{axes.x(count):.1f},{axes.y(median):.1f}" for count, median in points)
    yield f'<polyline points="{path}" stroke="{colour}"/>'
    for count, median in points:
        yield f'<circle cx="{axes.x(count):.1f}" cy="{axes.y(median):.1f}" r="3" fill="{colour}"/>'


def labels(axes, ends):
    """The names of lines, to the right of the chart, and not over one another; a dotted line leads to those that end early."""
    floor = math.inf
    for client, colour, (count, median) in sorted(ends, key=lambda end: end[2][1]):
        x, y, right = axes.x(count), axes.y(median), axes.left + WIDE
        floor = min(y + 4, floor - 14)
        if count < COUNTS[1]:
            client += ", no end"
            yield f'<path class="ended" d="M{x:.1f} {y:.1f}L{right} {floor - 4:.1f}" stroke="{colour}"/>'
        yield f'<text x="{right + 8}" y="{floor:.1f}" style="fill:{colour}">{client}</text>'


HEAD = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">
<title>What it costs to watch clusters and assignments by name, medians, both axes logarithmic</title>
<style>
  text {{ font: 12px sans-serif; fill: #57606a; }}
  .title {{ font-weight: bold; font-size: 13px; fill: #24292f; }}
  .grid {{ stroke: #8c959f; stroke-opacity: 0.35; fill: none; }}
  .ended {{ stroke-dasharray: 1 4; fill: none; }}
  polyline {{ fill: none; stroke-width: 2; }}
  @media (prefers-color-scheme: dark) {{ text {{ fill: #a5aeb8; }} .title {{ fill: #f0f3f6; }} }}
</style>"""


if __name__ == "__main__":
    main()
