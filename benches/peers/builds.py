#!/usr/bin/env python3
"""What a program takes along: clean release builds of the smallest one with each client, one after the other.

    builds.py --target DIR [--only CLIENT ...] [--into DOCUMENT]

Sources are downloaded before. The binary is measured without its symbols; the second build follows a change of `main.rs`.
"""

import argparse
import os
import re
import resource
import shutil
import subprocess
import time

from call_rounds import versions_of
from rounds import machine
from tables import machine_lines, write

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENTS = ["xdskit", "tonic-xds", "tonic"]
MARKS = re.compile("(?<=<!-- made by benches/peers/builds.py: begin -->\n).*?(?=<!-- end -->)", re.DOTALL)
PEERS = "tonic {tonic}, tonic-xds 0.1.0-alpha.4"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--only", nargs="+", choices=CLIENTS, default=CLIENTS)
    parser.add_argument("--into")
    args = parser.parse_args()
    before = machine(versions_of(PEERS))
    rows = {client: measure(client, os.path.join(args.target, client)) for client in args.only}
    made = "\n".join([*machine_lines(before), "", *table(rows)]) + "\n"
    write(made, MARKS, [args.into] if args.into else [])


def measure(client, target):
    package = os.path.join(HERE, "smallest", client)
    manifest = ["--locked", "--manifest-path", os.path.join(package, "Cargo.toml")]
    subprocess.run(["cargo", "fetch", "--quiet", *manifest], check=True)
    shutil.rmtree(target, ignore_errors=True)
    build = ["cargo", "build", "--quiet", "--release", *manifest, "--target-dir", target]
    wall, cpu = timed(build)
    binary = os.path.join(target, "release", f"smallest-{client}")
    stripped = f"{binary}-stripped"
    subprocess.run(["strip", "-o", stripped, binary], check=True)
    os.utime(os.path.join(package, "src", "main.rs"))
    again, _ = timed(build)
    return {"wall": wall, "cpu": cpu, "crates": crates(target), "size": os.path.getsize(stripped), "again": again}


def timed(command):
    """The seconds that a command took, and those of processors."""
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env={**os.environ, "CARGO_INCREMENTAL": "0"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - start, cpu


def crates(target):
    """The compiled libraries, and those of the compiler's plugins, each once."""
    files = os.listdir(os.path.join(target, "release", "deps"))
    return len({file.rsplit("-", 1)[0] for file in files if file.endswith((".rlib", ".so"))})


def table(rows):
    yield "| | " + " | ".join(rows) + " |"
    yield "|---|" + "---:|" * len(rows)
    yield line("clean release build, s", rows, lambda row: f"{row['wall']:.0f}")
    yield line("the same, CPU, s", rows, lambda row: f"{row['cpu']:.0f}")
    yield line("compiled crates", rows, lambda row: row["crates"])
    yield line("binary without symbols, MB", rows, lambda row: f"{row['size'] / 1e6:.1f}")
    yield line("release build after a change of `main.rs`, s", rows, lambda row: f"{row['again']:.1f}")


def line(name, rows, cell):
    return f"| {name} | " + " | ".join(str(cell(row)) for row in rows.values()) + " |"


if __name__ == "__main__":
    main()
