#!/usr/bin/env python3
"""Makes tables of the raw numbers of calls: call_tables.py FILE prints them, call_tables.py FILE DOCUMENT puts them into it."""

import json
import re
import statistics
import sys

from tables import machine_lines, three, write

ROWS = ["xdskit", "xdskit-grpc", "h2", "tonic", "grpc", "tonic-xds", "grpc-go", "envoy"]
NAMES = {"xdskit-grpc": "xdskit with a client of grpc", "grpc": "grpc with its own channel", "h2": "h2 without a channel", "envoy": "tonic with an Envoy sidecar"}
MARKS = re.compile("(?<=<!-- made by benches/peers/call_tables.py: begin -->\n).*?(?=<!-- end -->)", re.DOTALL)
# What, limit, endpoints, bytes, calls in flight, what is measured, beside whom.
TARGETS = [
    ("CPU per call beside tonic's plain channel, 1 endpoint", 1.10, "one", 100, 64, "cpu", "tonic"),
    ("the same beside tonic's balance channel, 10 endpoints", 0.95, "all", 100, 64, "cpu", "tonic"),
    ("the same beside tonic-xds", 0.75, "all", 100, 64, "cpu", "tonic-xds"),
    ("the same beside grpc-go's xDS channel", 0.85, "all", 100, 64, "cpu", "grpc-go"),
    ("64 KiB: CPU per call beside tonic's plain channel, 1 endpoint", 1.0, "one", 65_536, 64, "cpu", "tonic"),
    ("64 KiB: beside grpc-go's xDS channel, 10 endpoints", 0.55, "all", 65_536, 64, "cpu", "grpc-go"),
    ("CPU of client and proxy beside an Envoy sidecar, 10 endpoints", 0.40, "all", 100, 64, "cpu", "envoy"),
    ("p50 with one call in flight beside an Envoy sidecar, 10 endpoints", 0.5, "all", 100, 1, "p50", "envoy"),
    ("p50 with one call in flight beside tonic's plain channel", 1.05, "one", 100, 1, "p50", "tonic"),
]
# The same, of the client of the crate grpc on our channel.
TARGETS_OF_GRPC = [
    ("client of grpc: CPU per call beside tonic's client on the same channel, 1 endpoint", 1.10, "one", 100, 64, "cpu", "xdskit"),
    ("client of grpc: CPU per call beside grpc's own channel, 1 endpoint", 1.0, "one", 100, 64, "cpu", "grpc"),
]
FIRST_CALL_MS = 2.5


def main():
    with open(sys.argv[1], encoding="utf-8") as lines:
        machine, *runs = [json.loads(line) for line in lines]
    made = "\n".join([*machine_lines(machine), *targets(runs), *tables(runs), *first_calls(runs)]) + "\n"
    write(made, MARKS, sys.argv[2:])


def values(runs, client, case, key):
    """What was measured of a case, by round; CPU is that of the client and its proxy for each call."""
    found = {}
    for run in runs:
        if run["client"] != client or "first" in run or (run["endpoints"], run["size"], run["in_flight"]) != case:
            continue
        per_call = {"cpu": (run["cpu"] + run.get("proxy_cpu", 0)) / run["calls"], "client": run["cpu"] / run["calls"]}
        found[run["round"]] = per_call.get(key, run.get(key))
    return found


def ratio(of, to):
    """The median of the ratios within a round."""
    ratios = [value / to[number] for number, value in of.items() if number in to]
    return statistics.median(ratios) if ratios else None


def targets(runs):
    yield "\n| target | limit | measured | |\n|---|---:|---:|---|"
    compared = [("xdskit", target) for target in TARGETS] + [("xdskit-grpc", target) for target in TARGETS_OF_GRPC]
    for client, (what, limit, *case, key, other) in compared:
        measured = ratio(values(runs, client, tuple(case), key), values(runs, other, tuple(case), key))
        if measured is not None:
            met = "met" if measured <= limit else "**missed**"
            yield f"| {what} | ≤ {limit:.2f} x | {measured:.2f} x | {met} |"
    if first := [run["first"] for run in runs if run["client"] == "xdskit" and "first" in run]:
        took = statistics.median(first) / 1e6
        met = "met" if took <= FIRST_CALL_MS else "**missed**"
        yield f"| first call on a cold channel | ≤ {FIRST_CALL_MS} ms | {three(took)} ms | {met} |"


def tables(runs):
    clients = [client for client in ROWS if any(run["client"] == client for run in runs)]
    for endpoints, title in [("one", "1 endpoint"), ("all", "10 endpoints")]:
        yield f"\n**{title}**\n"
        cases = sorted({(run["size"], run["in_flight"]) for run in runs if run.get("endpoints") == endpoints})
        heads = [f"{size_name(size)}, {in_flight} in flight: {what}"
                 for size, in_flight in cases for what in ("CPU, µs", "p50, µs")]
        yield "| | " + " | ".join(heads) + " |\n|---|" + "---:|" * len(heads)
        for client in clients:
            cells = []
            for case in cases:
                for key in ("cpu", "p50"):
                    cells.append(cell(runs, client, (endpoints, *case), key))
            yield f"| {NAMES.get(client, client)} | " + " | ".join(cells) + " |"


def cell(runs, client, case, key):
    """A median in microseconds, of which a proxy's part is added; and how many times ours it is."""
    all_of = values(runs, client, case, key)
    if not all_of:
        return "–"
    text = three(statistics.median(all_of.values()) / 1e3)
    if client == "envoy" and key == "cpu":
        own = statistics.median(values(runs, client, case, "client").values()) / 1e3
        text = f"{three(own)} + {three(statistics.median(all_of.values()) / 1e3 - own)}"
    times = ratio(all_of, values(runs, ROWS[0], case, key))
    return text if client == ROWS[0] or times is None else f"{text} ({times:.2f} x)"


def first_calls(runs):
    yield "\n**First call of a process, ms**\n"
    first = {}
    for run in runs:
        if "first" in run:
            first.setdefault(run["client"], []).append(run["first"] / 1e6)
    clients = [client for client in ROWS if client in first]
    yield "| " + " | ".join(NAMES.get(client, client) for client in clients) + " |\n|" + "---:|" * len(clients)
    yield "| " + " | ".join(three(statistics.median(first[client])) for client in clients) + " |"


def size_name(size):
    return f"{size} B" if size < 1024 else f"{size // 1024} KiB"


if __name__ == "__main__":
    main()
