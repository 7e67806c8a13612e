#!/usr/bin/env bash
# Measures the client beside gRPC-Go's and the crate xds-client, on real sockets, in turns:
#
#   benches/peers/run.sh           all of it, into docs: the raw numbers, the tables and the picture; half an hour
#   benches/peers/run.sh --quick   200 resources, to see that everything works: some seconds once it is built
#   benches/peers/run.sh --counts 10000 --only xdskit grpc-go    those alone; prints tables
#
# Needs Rust, Go 1.26 and Python 3, on Linux. What is missing is got from crates.io and the Go
# module proxy, in exact versions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

main() {
  local tool bin raw
  for tool in cargo go python3; do
    command -v "$tool" >/dev/null || fail "$tool is needed"
  done
  export PYTHONDONTWRITEBYTECODE=1
  target=$(cargo metadata --locked --no-deps --format-version 1 | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')/peers
  bin=$target/release raw=$target/runs.jsonl
  cargo build --locked --quiet --release --manifest-path benches/peers/Cargo.toml --target-dir "$target"
  build_grpc_go "$bin"
  python3 benches/peers/rounds.py --bin "$bin" --out "$raw" "$@"
  if [ $# -gt 0 ]; then
    python3 benches/peers/tables.py "$raw"
  else
    cp "$raw" docs/performance/peers.jsonl
    python3 benches/peers/tables.py "$raw" docs/PERFORMANCE.md
    python3 benches/peers/plot.py "$raw" docs/performance/peers.svg
  fi
}

build_grpc_go() (
  cd benches/peers/grpc_go
  export GOFLAGS=-mod=readonly GOTOOLCHAIN=local
  unformatted=$(gofmt -l .)
  [ -z "$unformatted" ] || fail "not formatted by gofmt: $unformatted"
  go build -o "$1/grpc-go" .
)

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

main "$@"
