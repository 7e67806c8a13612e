#!/usr/bin/env python3
"""Measures calls of several clients in turns, to the same servers: started by run.sh, which builds them.

    call_rounds.py --bin DIR --envoy PROGRAM --out FILE [--quick] [--only CLIENT...]

Writes a JSON object a line for each client and round: CPU of the client's process and of its proxy, and latencies, in nanoseconds.
The client has the first core that this process may use, the servers have the last one, and Envoy has all of them.
"""

import argparse
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from rounds import Process, machine

ENDPOINTS = 10
CLIENTS = {
    "xdskit": ["calls", "xdskit"],
    "xdskit-grpc": ["calls", "xdskit-grpc"],
    "grpc": ["calls", "grpc"],
    "h2": ["calls", "h2"],
    "tonic": ["calls", "tonic"],
    "tonic-xds": ["calls", "tonic-xds"],
    "grpc-go": ["grpc-go", "calls"],
    "envoy": ["calls", "sidecar"],
}
# The channel of this one is to one endpoint.
ONE_ENDPOINT = {"grpc"}
PEERS = "tonic {tonic}, grpc 0.9.0, tonic-xds 0.1.0-alpha.4, grpc-go 1.85.0, Envoy {envoy}"
PEERS_OF_TLS = "tonic {tonic}, grpc-go 1.85.0"
# Bytes of a message, calls in flight, calls in a round.
CASES = [(100, 64, 10_000), (100, 1, 1_000), (65_536, 64, 2_000), (65_536, 1, 500)]
ROUNDS = 11
# First calls, each in a process of its own.
FIRST_CALLS = 11


class Envoy:
    """A proxy with a listener to one server, and one to all of them."""

    def __init__(self, program, backends):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
            json.dump(envoy_config(backends), config)
            config.flush()
            command = [program, "--disable-hot-restart", "--concurrency", "1", "--log-format", "%v", "-c", config.name]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.addresses = {}
            for line in self.process.stderr:
                # The last line of a start.
                if "starting workers" in line:
                    break
                if found := re.search(r"admin address: (\S+)", line):
                    self.admin = found[1]
            else:
                raise SystemExit(f"Envoy ended with exit code {self.process.wait()}")
        # A pipe that nobody reads would stop it.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def listeners(self):
        """The addresses of its listeners, that to one server first."""
        for _ in range(100):
            with urllib.request.urlopen(f"http://{self.admin}/listeners?format=json", timeout=5) as answer:
                listeners = json.load(answer).get("listener_statuses", [])
            if len(listeners) == 2:
                address = {it["name"]: it["local_address"]["socket_address"] for it in listeners}
                return [f"127.0.0.1:{address[name]['port_value']}" for name in ("one", "all")]
            time.sleep(0.05)
        raise SystemExit("Envoy has no listeners")

    def cpu(self):
        """The time that its threads had the processor."""
        total = 0
        for path in glob.glob(f"/proc/{self.process.pid}/task/*/schedstat"):
            with open(path, encoding="ascii") as stat:
                total += int(stat.read().split()[0])
        return total

    def end(self):
        self.process.terminate()
        self.process.wait(timeout=10)


def envoy_config(backends):
    def address(port):
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    def cluster(name, ports):
        http2 = {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }
        endpoints = [{"endpoint": {"address": address(port)}} for port in ports]
        return {
            "name": name,
            "type": "STATIC",
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
            "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
        }

    def listener(name):
        manager = {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": name,
            "codec_type": "HTTP2",
            "route_config": {"virtual_hosts": [{
                "name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": name}}]}]},
            "http_filters": [{"name": "router", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
        }
        filters = [{"name": "http", "typed_config": manager}]
        return {"name": name, "address": address(0), "filter_chains": [{"filters": filters}]}

    ports = [int(it.rsplit(":", 1)[1]) for it in backends]
    return {
        "admin": {"address": address(0)},
        "static_resources": {
            "clusters": [cluster("one", ports[:1]), cluster("all", ports)],
            "listeners": [listener("one"), listener("all")],
        },
    }


class World:
    """The servers, and how a client is started."""

    def __init__(self, bin_dir, envoy):
        cores = sorted(os.sched_getaffinity(0))
        self.bin_dir, self.client_core, server_core = bin_dir, {cores[0]}, {cores[-1]}
        self.backend = Process([os.path.join(bin_dir, "backend"), str(ENDPOINTS)], server_core)
        self.backends = self.backend.hear("listening")["addresses"]
        self.control_plane = Process([os.path.join(bin_dir, "control-plane"), *self.backends], server_core)
        self.address = self.control_plane.hear("listening")["address"]
        self.envoy = Envoy(envoy, self.backends)
        self.listeners = self.envoy.listeners()

    def start(self, client):
        program, mode = CLIENTS[client]
        servers = {"envoy": self.listeners, "grpc-go": []}.get(client, self.backends)
        return Process([os.path.join(self.bin_dir, program), mode, self.address, *servers], self.client_core)

    def end(self):
        self.envoy.end()
        self.control_plane.end()
        self.backend.end()


def measure(world, client, process, case, number):
    """A round of calls of one client."""
    endpoints, size, in_flight, calls = case
    before = world.envoy.cpu()
    process.say(f"round {endpoints} {size} {in_flight} {calls}")
    told = process.hear("round", 60)
    if told["failed"]:
        raise SystemExit(f"{client}: {told['failed']} calls failed, such as: {told['error']}")
    took = {"client": client, "round": number, "endpoints": endpoints, "size": size, "in_flight": in_flight}
    took |= {key: told[key] for key in ("calls", "wall", "cpu", "p50", "p99")}
    if client == "envoy":
        took["proxy_cpu"] = world.envoy.cpu() - before
    return took


def rounds(world, clients, quick):
    """All rounds of all cases: the first of a case connects, and is not counted."""
    processes = {client: world.start(client) for client in clients}
    for endpoints in ("one", "all"):
        for size, in_flight, calls in CASES:
            case = (endpoints, size, in_flight, calls // 10 if quick else calls)
            for number in range(3 if quick else ROUNDS + 1):
                for client, process in processes.items():
                    if endpoints == "all" and client in ONE_ENDPOINT:
                        continue
                    took = measure(world, client, process, case, number)
                    if number > 0:
                        yield took
            print(f"{endpoints:>4} {size:>6} B, {in_flight:>2} in flight", file=sys.stderr)
    for process in processes.values():
        process.end()


def first_calls(world, clients, quick):
    """The first call of a process, from before the client is built."""
    for number in range(2 if quick else FIRST_CALLS):
        for client in clients:
            process = world.start(client)
            took = measure(world, client, process, ("one", 100, 1, 1), number)
            process.end()
            yield {"client": client, "round": number, "first": took["wall"]}


def versions(envoy):
    """The peers with their versions."""
    told = subprocess.run([envoy, "--version"], check=True, capture_output=True, text=True).stdout
    return versions_of(PEERS, envoy=re.search(r"/(\d+\.\d+\.\d+)/", told)[1])


def versions_of(peers=PEERS_OF_TLS, **versions):
    """The same of those that are libraries."""
    with open(os.path.join(os.path.dirname(__file__), "Cargo.lock"), encoding="utf-8") as lock:
        tonic = re.search(r'name = "tonic"\nversion = "([^"]+)"', lock.read())[1]
    return peers.format(tonic=tonic, **versions)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--envoy", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=CLIENTS)
    args = parser.parse_args()
    clients = args.only or list(CLIENTS)
    world = World(args.bin, args.envoy)
    try:
        with open(args.out, "w", encoding="utf-8") as out:
            out.write(json.dumps(machine(versions(args.envoy))) + "\n")
            for part in (first_calls, rounds):
                for took in part(world, clients, args.quick):
                    out.write(json.dumps(took) + "\n")
                    out.flush()
    finally:
        world.end()


if __name__ == "__main__":
    main()
