#!/usr/bin/env bash
# Measures the client beside gRPC-Go's and the crate xds-client, on real sockets, in turns:
#
#   benches/peers/run.sh           all of it, into target/peers/runs.jsonl, and prints tables: half an hour
#   benches/peers/run.sh --quick   200 resources, to see that everything works: some seconds once it is built
#
# Other arguments go to rounds.py. Needs Rust, Go 1.26 and Python 3, on Linux. What is missing is got from crates.io and the Go
# module proxy, in exact versions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

main() {
  local tool bin out argument
  for tool in cargo go python3; do
    command -v "$tool" >/dev/null || fail "$tool is needed"
  done
  export PYTHONDONTWRITEBYTECODE=1
  target=$(cargo metadata --locked --no-deps --format-version 1 | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')/peers
  bin=$target/release out=$target/runs.jsonl
  cargo build --locked --quiet --release --manifest-path benches/peers/Cargo.toml --target-dir "$target"
  build_grpc_go "$bin"
  for argument; do
    [ "$argument" != --quick ] || out=$target/quick.jsonl
  done
  python3 benches/peers/rounds.py --bin "$bin" --out "$out" "$@"
  python3 benches/peers/tables.py "$out"
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
