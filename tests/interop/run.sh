#!/usr/bin/env bash
# Tests the client against management servers that others wrote. tests/interop/run.sh [FILTER] runs those tests whose
# names contain FILTER. See README.md beside it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
command -v go >/dev/null || { echo "Go is needed: see tests/interop/README.md" >&2; exit 1; }

bin=$(cargo metadata --locked --no-deps --format-version 1 | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')/interop
mkdir -p "$bin"
(
  cd tests/interop/gcp
  export GOFLAGS=-mod=readonly GOTOOLCHAIN=local
  unformatted=$(gofmt -l .)
  [ -z "$unformatted" ] || { echo "not formatted by gofmt: $unformatted" >&2; exit 1; }
  go vet ./...
  go build -o "$bin/gcp" .
)
cargo build --locked --quiet --example watch --example walk
examples=${bin%/interop}/debug/examples
XDSKIT_INTEROP_PEER=$bin/gcp XDSKIT_INTEROP_WATCH=$examples/watch XDSKIT_INTEROP_WALK=$examples/walk \
  cargo test --locked --test interop -- "$@"
