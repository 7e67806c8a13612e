#!/usr/bin/env python3
"""Makes tables of the raw numbers: tables.py FILE prints them, tables.py FILE DOCUMENT puts them into it, between its marks."""

import json
import re
import statistics
import sys

# The first is what the others are compared with.
ROWS = ["xdskit", "xdskit delta", "grpc-go", "xds-client"]
ALL_ROWS = ["xdskit all", "xds-client all", "xds-client messages"]
MARKS = re.compile("(?<=<!-- made by benches/peers/tables.py: begin -->\n).*?(?=<!-- end -->)", re.DOTALL)


def main():
    with open(sys.argv[1], encoding="utf-8") as lines:
        machine, *runs = [json.loads(line) for line in lines]
    cases = {}
    for run in runs:
        cases.setdefault((run["count"], run["client"]), []).append(run)
    made = "\n".join([*machine_lines(machine), *targets(cases), *tables(cases)]) + "\n"
    write(made, MARKS, sys.argv[2:])


def write(made, marks, documents):
    """Puts the tables between the marks of a document; without one, prints them."""
    if not documents:
        print(made)
        return
    with open(documents[0], encoding="utf-8") as document:
        text = document.read()
    if not marks.search(text):
        raise SystemExit(f"{documents[0]} has no place for the tables")
    with open(documents[0], "w", encoding="utf-8") as document:
        document.write(marks.sub(lambda _: made, text))


def machine_lines(machine):
    yield f"Measured on {machine['cores']} cores ({machine['processor']}), {machine['memory'] / 2**30:.0f} GiB,"
    yield f"Linux {machine['kernel']}, with {machine['rustc']}, {machine['go']}, and {machine['peers']}, on {machine['date']}."
    yield f"Others worked on the machine, too: {machine['load']:.1f} threads wanted a core when it began."


def targets(cases):
    """Each with what was measured."""
    rows = [
        ("start to all delivered at 10k + 10k, grpc-go's beside ours", "≥ 50 x",
         ratio(cases, 10_000, "start", "grpc-go", "xdskit"), lambda x: x >= 50),
        ("the same, xds-client's beside ours", "≥ 300 x",
         ratio(cases, 10_000, "start", "xds-client", "xdskit"), lambda x: x >= 300),
        ("ours at 50k + 50k beside 10k + 10k", "≤ 6.5 x",
         quotient(median(cases, 50_000, "xdskit", "start"), median(cases, 10_000, "xdskit", "start")), lambda x: x <= 6.5),
        ("all of 50k clusters by one watch, ours beside xds-client's that keeps messages: time", "≤ 0.6 x",
         ratio(cases, 50_000, "start", "xdskit all", "xds-client messages"), lambda x: x <= 0.6),
        ("the same: peak memory", "≤ 0.25 x",
         ratio(cases, 50_000, "peak", "xdskit all", "xds-client messages"), lambda x: x <= 0.25),
        ("peak memory at 10k + 10k, ours beside grpc-go's", "≤ 0.15 x",
         ratio(cases, 10_000, "peak", "xdskit", "grpc-go"), lambda x: x <= 0.15),
        ("one assignment of 10k changes, ours beside grpc-go's", "≤ 0.3 x",
         ratio(cases, 10_000, "change_endpoints", "xdskit", "grpc-go"), lambda x: x <= 0.3),
        ("one cluster of 10k changes (state of the world), ours beside grpc-go's", "≤ 0.1 x",
         ratio(cases, 10_000, "change_clusters", "xdskit", "grpc-go"), lambda x: x <= 0.1),
    ]
    yield "\n| target | limit | measured | |\n|---|---:|---:|---|"
    for what, limit, measured, is_met in rows:
        if measured is None:
            yield f"| {what} | {limit} | – | not measured |"
        else:
            value, is_least = measured
            met = "met" if is_met(value) else "**missed**"
            yield f"| {what} | {limit} | {'> ' if is_least else ''}{three(value)} x | {met} |"


def tables(cases):
    for what, who in [("{0:,} clusters and {0:,} assignments, one watch a name", ROWS),
                      ("{0:,} clusters by one watch of all", ALL_ROWS)]:
        for count in sorted({count for count, client in cases if client in who}):
            yield f"\n**{what.format(count)}**\n"
            yield from table([(client, cases.get((count, client), [])) for client in who], who[0])


def ratio(cases, count, key, of, to):
    """A ratio of medians, and whether it is but a lower bound."""
    value = median(cases, count, of, key)
    return quotient(value or at_least(cases, count, of, key), median(cases, count, to, key), value is None)


def at_least(cases, count, client, key):
    """What it took till it was stopped, if it never finished."""
    return max((run.get(f"{key}_is_over", 0) for run in cases.get((count, client), [])), default=0)


def quotient(one, other, is_least=False):
    return (one / other, is_least) if one and other else None


def median(cases, count, client, key):
    """The median of the runs that finished; of several times in one run their median counts."""
    finished = [run[key] for run in cases.get((count, client), []) if "unfinished" not in run and key in run]
    return statistics.median(statistics.median(v) if isinstance(v, list) else v for v in finished) if finished else None


# Heading, key, and what it is divided by.
COLUMNS = [
    ("start to all delivered, ms", "start", 1e6),
    ("CPU, ms", "cpu", 1e6),
    ("peak memory, MB", "peak", 1e6),
    ("requests", "requests", 1),
    ("sent by the client, kB", "request_bytes", 1e3),
    ("unchanged: ACK, ms", "unchanged", 1e6),
    ("unchanged: CPU, ms", "unchanged_cpu", 1e6),
    ("one cluster, ms", "change_clusters", 1e6),
    ("one assignment, ms", "change_endpoints", 1e6),
]


def table(rows, us):
    cases = {(0, client): runs for client, runs in rows}
    columns = [column for column in COLUMNS if any(median(cases, 0, client, column[1]) for client, _ in rows)]
    yield "| | runs | " + " | ".join(heading for heading, _, _ in columns) + " |"
    yield "|---|---:|" + "---:|" * len(columns)
    for client, runs in rows:
        if not runs:
            continue
        if all("unfinished" in run for run in runs):
            cells = [unfinished(runs[0])] + [""] * (len(columns) - 1)
        else:
            cells = [cell(cases, client, us, column) for column in columns]
        yield "| " + " | ".join([client, str(len(runs)), *cells]) + " |"


def unfinished(run):
    """Why, and how far it came."""
    if "missing" not in run:
        return run["unfinished"]
    return f"{run['unfinished']}: {run['missing']:,} missing, {run['cpu'] / 1e9:.0f} s CPU, {run['peak'] / 1e6:,.0f} MB"


def cell(cases, client, us, column):
    """A median, and how many times ours it is."""
    _, key, unit = column
    value, ours = median(cases, 0, client, key), median(cases, 0, us, key)
    if value is None:
        return "–"
    return three(value / unit) + (f" ({three(value / ours)} x)" if ours and client != us else "")


def three(value):
    """Three digits that count."""
    if value == int(value) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


if __name__ == "__main__":
    main()
