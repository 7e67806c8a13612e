#!/usr/bin/env python3
"""Measures mutual TLS of several clients in turns, to the same server: started by run.sh, which builds them.

    tls_rounds.py --bin DIR --out FILE [--quick] [--into DOCUMENT]

A handshake is a channel with its first call, in a process that has the configuration already: another channel holds it. The client
has the first core that this process may use, the servers have the last one.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile

from call_rounds import versions_of
from rounds import Process, machine
from tables import machine_lines, three, write

CLIENTS = {
    "xdskit": ["calls", "xdskit-tls"],
    "grpc-go": ["grpc-go", "calls"],
    "tonic": ["calls", "tonic-tls"],
}
MARKS = re.compile("(?<=<!-- made by benches/peers/tls_rounds.py: begin -->\n).*?(?=<!-- end -->)", re.DOTALL)
# What is told to a client, and who is measured.
CASES = {
    "handshakes": ("handshakes 200", ["xdskit", "grpc-go", "tonic"]),
    "64 in flight": ("round one 100 64 10000", ["xdskit", "grpc-go", "tonic"]),
    "1 in flight": ("round one 100 1 1000", ["xdskit", "grpc-go", "tonic"]),
}
ROUNDS = 11


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--into")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open(args.out, "w", encoding="utf-8") as out:
        subprocess.run([os.path.join(args.bin, "certificates"), folder], check=True)
        runs = [machine(versions_of()), *rounds(args.bin, folder, args.quick)]
        out.writelines(json.dumps(run) + "\n" for run in runs)
    made = "\n".join([*machine_lines(runs[0]), *tables(runs[1:])]) + "\n"
    write(made, MARKS, [args.into] if args.into else [])


def rounds(bin_dir, folder, quick):
    cores = sorted(os.sched_getaffinity(0))
    client_core, server_core = {cores[0]}, {cores[-1]}
    backend = Process([os.path.join(bin_dir, "backend"), "1", folder], server_core)
    backends = backend.hear("listening")["addresses"]
    control_plane = Process([os.path.join(bin_dir, "control-plane"), "--tls", *backends], server_core)
    address = control_plane.hear("listening")["address"]
    clients = {}
    for client, (program, mode) in CLIENTS.items():
        servers = [folder] if client == "grpc-go" else [*backends, folder]
        clients[client] = Process([os.path.join(bin_dir, program), mode, address, *servers], client_core)
        # The channel that holds the configuration.
        measure(clients[client], "round one 100 1 1")
    for case, (line, measured) in CASES.items():
        for number in range(2 if quick else ROUNDS + 1):
            for client in measured:
                told = measure(clients[client], re.sub(r"0 ?$", "", line) if quick else line)
                # The first round warms up.
                if number > 0:
                    yield {"client": client, "case": case, "round": number, **told}
    for process in [*clients.values(), control_plane, backend]:
        process.end()


def measure(process, line):
    process.say(line)
    told = process.hear("round", 120)
    if told["failed"]:
        raise SystemExit(f"{told['failed']} calls failed, such as: {told['error']}")
    return {key: told[key] for key in ("calls", "wall", "cpu", "p50")}


def tables(runs):
    yield "\n| target | limit | measured | |\n|---|---:|---:|---|"
    beside = ratio(runs, "handshakes", "grpc-go")
    yield f"| handshakes per second of CPU beside grpc-go's xDS channel | ≥ 1.00 x | {beside:.2f} x | {met(beside >= 1)} |"
    beside = 1 / ratio(runs, "64 in flight", "tonic")
    yield f"| CPU per call over TLS beside tonic's TLS channel | ≤ 1.08 x | {beside:.2f} x | {met(beside <= 1.08)} |"
    heads = [f"{case}: {what}" for case in CASES for what in ("CPU, µs", "time, µs")]
    yield "\n| | " + " | ".join(heads) + " |\n|---|" + "---:|" * len(heads)
    for client in CLIENTS:
        cells = []
        for case in CASES:
            own = [run for run in runs if run["client"] == client and run["case"] == case]
            for key in ("cpu", "wall"):
                cells.append(three(statistics.median(run[key] / run["calls"] for run in own) / 1e3))
        yield f"| {client} | " + " | ".join(cells) + " |"


def ratio(runs, case, other):
    """The CPU of another client beside ours, by the median of the rounds."""
    cpu = {(run["client"], run["round"]): run["cpu"] for run in runs if run["case"] == case}
    numbers = {number for _, number in cpu}
    return statistics.median(cpu[other, number] / cpu["xdskit", number] for number in numbers)


def met(is_met):
    return "met" if is_met else "**missed**"


if __name__ == "__main__":
    main()
