#!/usr/bin/env python3
"""Prints the tables of docs/PERFORMANCE.md from the raw numbers: tables.py FILE."""

import json
import statistics
import sys

# The first is what the others are compared with.
ROWS = ["xdskit", "xdskit delta", "grpc-go", "xds-client"]
ALL_ROWS = ["xdskit all", "xds-client all"]


def main():
    with open(sys.argv[1], encoding="ascii") as lines:
        runs = [json.loads(line) for line in lines]
    cases = {}
    for run in runs:
        cases.setdefault((run["count"], run["client"]), []).append(run)
    for what, who in [("{0:,} clusters and {0:,} assignments, one watch a name", ROWS),
                      ("{0:,} clusters by one watch of all", ALL_ROWS)]:
        for count in sorted({count for count, client in cases if client in who}):
            print(f"\n### {what.format(count)}\n")
            table([(client, cases.get((count, client), [])) for client in who], who[0])


# Heading, unit, and what is taken from a run.
COLUMNS = [
    ("start to all delivered", "ms", lambda run: run["start"] / 1e6),
    ("CPU", "ms", lambda run: run["cpu"] / 1e6),
    ("peak memory", "MB", lambda run: run["peak"] / 1e6),
    ("requests", "", lambda run: run["requests"]),
    ("sent by the client", "kB", lambda run: run["request_bytes"] / 1e3),
    ("unchanged: ACK", "ms", lambda run: run["unchanged"] / 1e6),
    ("unchanged: CPU", "ms", lambda run: run["unchanged_cpu"] / 1e6),
    ("one cluster", "ms", lambda run: statistics.median(run["change_clusters"]) / 1e6),
    ("one assignment", "ms", lambda run: statistics.median(run["change_endpoints"]) / 1e6),
]


def table(rows, us):
    rows = [(who, runs) for who, runs in rows if runs]
    columns = [column for column in COLUMNS if any(medians(runs, column) for _, runs in rows)]
    head = ["", "runs"] + [f"{heading}, {unit}" if unit else heading for heading, unit, _ in columns]
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" + "---:|" * (len(head) - 1))
    ours = dict(rows).get(us, [])
    for who, runs in rows:
        finished = [run for run in runs if "unfinished" not in run]
        if not finished:
            missing = f", {runs[0]['missing']:,} missing" if "missing" in runs[0] else ""
            cells = [f"{runs[0]['unfinished']}{missing}"] + [""] * (len(columns) - 1)
        else:
            cells = [cell(medians(runs, column), medians(ours, column) if who != us else None) for column in columns]
        print("| " + " | ".join([who, str(len(runs)), *cells]) + " |")


def medians(runs, column):
    try:
        values = [column[2](run) for run in runs if "unfinished" not in run]
    except KeyError:
        return None
    return statistics.median(values) if values else None


def cell(value, ours):
    """A median, and how many times ours it is."""
    if value is None:
        return "–"
    ratio = f" ({three(value / ours)} x)" if ours else ""
    return three(value) + ratio


def three(value):
    """Three digits that count."""
    if value == int(value):
        return f"{int(value):,}"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


if __name__ == "__main__":
    main()
