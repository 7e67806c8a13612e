#!/usr/bin/env python3
"""Measures the clients in turns, beside one management server: started by run.sh, which builds them.

    rounds.py --bin DIR --out FILE [--quick] [--only CLIENT...] [--counts N...]

Writes a JSON object a line for each run: who, how many, what it took. Times are in nanoseconds, memory in bytes. A run that does
not finish says why.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time

# A run may take so long, with 50,000 so much less, since that has no end; and so much memory.
SECONDS = 420
SECONDS_OF_MANY = 180
MEMORY = 6 << 30
# Changes of one resource in a run, of each type.
CHANGES = 15

CLIENTS = {
    "xdskit": ["ours"],
    "xdskit delta": ["ours", "delta"],
    "grpc-go": ["grpc-go"],
    "xds-client": ["xds-client"],
    "xdskit all": ["ours", "all"],
    "xds-client all": ["xds-client", "all"],
    "xds-client messages": ["xds-client", "messages"],
}
NAMED = ["xdskit", "grpc-go", "xds-client", "xdskit delta"]
ALL = ["xdskit all", "xds-client all", "xds-client messages"]


def machine(peers):
    """What it is measured on."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        processor = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "processor": processor,
        "memory": pages * page,
        "kernel": os.uname().release,
        "rustc": "rustc " + word(["rustc", "--version"], 1),
        "go": "Go " + word(["go", "version"], 2).removeprefix("go"),
        "peers": peers,
        "load": os.getloadavg()[2],
        "date": time.strftime("%Y-%m-%d"),
    }


def word(command, number):
    """One of the words that a command says."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[number]


def plan(quick):
    """The cases: how many clusters, who, and in how many rounds."""
    if quick:
        return [(200, NAMED, 1), (200, ALL, 1)]
    # What takes minutes is not repeated as often.
    slow = {(10_000, "grpc-go"): 3, (10_000, "xds-client"): 2, (50_000, "grpc-go"): 1, (50_000, "xds-client"): 1}
    cases = []
    for count, rounds in [(1_000, 7), (10_000, 7), (50_000, 7)]:
        for number in range(rounds):
            who = [client for client in NAMED if number < slow.get((count, client), rounds)]
            cases.append((count, who, 1))
        cases.append((count, ALL, rounds))
    return cases


class Process:
    """A program of ours: takes lines, tells JSON objects."""

    def __init__(self, command, cores=None):
        pin = None if cores is None else lambda: os.sched_setaffinity(0, cores)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, preexec_fn=pin)
        self.events = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.events.put(json.loads(line))
        self.events.put(None)

    def say(self, line):
        self.process.stdin.write(line + "\n")

    def hear(self, event, seconds=30, check=lambda: None):
        """The next such event; what else is told is passed over, but for trouble."""
        end = time.monotonic() + seconds
        while True:
            try:
                told = self.events.get(timeout=min(0.25, max(0.0, end - time.monotonic())))
            except queue.Empty:
                check()
                if time.monotonic() >= end:
                    raise Unfinished(f"not finished after {seconds} s") from None
                continue
            if told is None:
                raise Unfinished(f"ended with exit code {self.process.wait()}")
            if told["event"] in ("rejected", "misunderstood"):
                raise SystemExit(f"the server says {told}")
            if told["event"] == event:
                return told

    def forget(self):
        """What was told so far is not waited for any more."""
        while not self.events.empty():
            self.events.get()

    def memory(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            kilobytes = [int(line.split()[1]) for line in status if line.startswith("VmRSS:")]
        return kilobytes[0] * 1024 if kilobytes else 0

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kill(self):
        self.process.kill()
        self.process.wait()


class Unfinished(Exception):
    """A run that came to no end; the text says why."""


class Run:
    """One client, from its start to its end."""

    def __init__(self, server, address, bin_dir, who, count):
        program, *mode = CLIENTS[who]
        self.server, self.who, self.count = server, who, count
        self.client = Process([os.path.join(bin_dir, program), address, str(count), *mode])
        self.kinds = ["clusters"] if who in ALL else ["clusters", "endpoints"]
        self.took = {"client": who, "count": count}

    def measure(self, seconds):
        try:
            self.start(seconds)
            self.unchanged()
            self.changes()
            self.took["peak_at_end"] = self.report()["peak"]
            self.client.end()
        except Unfinished as why:
            self.took["unfinished"] = str(why)
            self.client.kill()
        closed = self.server.hear("closed", 60)
        self.took["requests_at_end"] = closed["requests"]
        return self.took

    def start(self, seconds):
        begun = time.monotonic_ns()
        try:
            told = self.client.hear("delivered", seconds, self.check_memory)
        except Unfinished:
            self.took["start_is_over"] = time.monotonic_ns() - begun
            self.tell_what_is_missing()
            raise
        self.took |= {
            "start": told["delivered"] - told["started"],
            "cpu": told["cpu"],
            "peak": told["peak"],
            "errors": told["errors"],
        }
        self.server.say("stats")
        stats = self.server.hear("stats")
        self.took |= {key: stats[key] for key in ("requests", "request_bytes", "responses", "response_bytes")}
        self.settle()

    def unchanged(self):
        before = self.report()["cpu"]
        self.server.forget()
        self.server.say("unchanged")
        acked = [self.server.hear("acked", 60) for _ in self.kinds]
        self.took["unchanged"] = max(ack["acked"] for ack in acked) - min(ack["pushed"] for ack in acked)
        self.took["unchanged_cpu"] = self.settle() - before

    def changes(self):
        for kind in self.kinds:
            took = []
            for turn in range(CHANGES):
                number = (turn * 7919 + 13) % self.count
                self.client.say(f"expect {kind} {number}")
                self.client.hear("expecting")
                self.server.forget()
                self.server.say(f"change {kind} {number}")
                pushed = self.server.hear("acked", 60)["pushed"]
                took.append(self.client.hear("changed", 60)["at"] - pushed)
                self.settle()
            self.took[f"change_{kind}"] = took

    def settle(self):
        """Waits until the client works on nothing any more; the time of the processor that it has used till then."""
        last = self.report()["cpu"]
        for _ in range(600):
            time.sleep(0.02)
            now = self.report()["cpu"]
            # The report itself is work, too.
            if now - last < 2_000_000:
                return now
            last = now
        raise Unfinished("never at rest")

    def report(self):
        self.client.say("report")
        return self.client.hear("report")

    def check_memory(self):
        used = self.client.memory()
        if used > MEMORY:
            raise Unfinished(f"stopped at {used / 2**30:.1f} GiB of memory")

    def tell_what_is_missing(self):
        try:
            told = self.report()
        except (Unfinished, OSError):
            return
        self.took |= {"missing": told["missing"], "errors": told["errors"], "cpu": told["cpu"], "peak": told["peak"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=CLIENTS)
    parser.add_argument("--counts", nargs="+", type=int)
    args = parser.parse_args()
    server = Process([os.path.join(args.bin, "server")])
    address = server.hear("listening")["address"]
    with open(args.out, "w", encoding="utf-8") as out:
        out.write(json.dumps(machine("grpc-go 1.85.0, xds-client 0.1.0-alpha.4")) + "\n")
        for count, who, rounds in plan(args.quick):
            if args.counts and count not in args.counts:
                continue
            server.say(f"make {count}")
            server.hear("made", 60)
            for client in [client for _ in range(rounds) for client in who]:
                if args.only and client not in args.only:
                    continue
                limit = SECONDS if count < 50_000 else SECONDS_OF_MANY
                took = Run(server, address, args.bin, client, count).measure(limit)
                out.write(json.dumps(took) + "\n")
                out.flush()
                seconds = took.get("start", 0) / 1e9
                print(f"{count:>6} {client:<15}", took.get("unfinished", f"{seconds:8.3f} s"), file=sys.stderr)
                if args.quick and "unfinished" in took:
                    raise SystemExit(f"{client} did not finish: {took}")
    server.end()


if __name__ == "__main__":
    main()
