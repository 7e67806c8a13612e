#!/usr/bin/env bash
# Records the resources that servers send, by their own code: see README.md. Without arguments, those of all servers.
#
#   tests/interop/dumps/make.sh [istio|consul|envoy-gateway]...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

[ $# -gt 0 ] || set -- istio consul envoy-gateway
export GOFLAGS=-mod=readonly GOTOOLCHAIN=local
for server; do
  [ -f "$server/main.go" ] || { echo "usage: make.sh [istio|consul|envoy-gateway]..." >&2; exit 2; }
  (cd "$server" && go run . .)
done
