#!/usr/bin/env bash
# Records what a server sends, by its own code: see README.md. tests/interop/dumps/make.sh istio
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

[ $# -eq 1 ] && [ -f "$1/main.go" ] || { echo "usage: make.sh istio" >&2; exit 2; }
cd "$1"
export GOFLAGS=-mod=readonly GOTOOLCHAIN=local
go run . .
