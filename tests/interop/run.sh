#!/usr/bin/env bash
# Tests the client against management servers of other projects, and the management server against clients of other
# projects. tests/interop/run.sh [FILTER] runs those tests whose names contain FILTER. See README.md beside it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. .ci/functions.sh

main() {
  local tool
  for tool in go java javac jar mvn python3 setpriv; do
    command -v "$tool" >/dev/null || fail "$tool is needed: see tests/interop/README.md"
  done
  target=$(target_directory)
  bin=$target/interop
  mkdir -p "$bin"
  build_go gcp
  build_go strict
  build_go grpcgo
  build_jcp
  install_envoy "$bin/envoy"
  cargo build --locked --quiet --example watch --example walk --example relay
  cargo build --locked --quiet --all-features --bin xdskit
  XDSKIT_INTEROP_GCP=$bin/gcp XDSKIT_INTEROP_STRICT=$bin/strict XDSKIT_INTEROP_JCP=$bin/jcp/run \
    XDSKIT_INTEROP_ENVOY=$bin/envoy/envoy/_bin/envoy \
    XDSKIT_INTEROP_WATCH=$target/debug/examples/watch XDSKIT_INTEROP_WALK=$target/debug/examples/walk \
    XDSKIT_INTEROP_RELAY=$target/debug/examples/relay \
    XDSKIT_INTEROP_GRPC_GO=$bin/grpcgo XDSKIT_INTEROP_TOOL=$target/debug/xdskit \
    cargo test --locked --test interop -- --test-threads=6 "$@"
}

# build_go PROGRAM
build_go() (
  cd "tests/interop/$1"
  export GOFLAGS=-mod=readonly GOTOOLCHAIN=local
  unformatted=$(gofmt -l .)
  [ -z "$unformatted" ] || fail "not formatted by gofmt: $unformatted"
  go vet ./...
  go build -o "$bin/$1" .
)

# Compiled again after changes.
build_jcp() {
  local jcp=$bin/jcp stamp
  stamp=$(cat tests/interop/jcp/* "${BASH_SOURCE[0]}" <(java -version 2>&1) | sha256sum)
  [ "$(cat "$jcp/stamp" 2>/dev/null)" != "$stamp" ] || return 0
  rm -rf "$jcp"
  mkdir -p "$jcp/classes"
  bounded 600 mvn --batch-mode --no-transfer-progress --quiet --file tests/interop/jcp/pom.xml \
    -Dmaven.repo.local="$bin/maven" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$jcp/lib"
  javac -Xlint:all -Werror -proc:none -d "$jcp/classes" -cp "$jcp/lib/*" tests/interop/jcp/*.java
  jar --create --file "$jcp/jcp.jar" -C "$jcp/classes" .
  # It is started for each test, so its classes are archived for a fast start.
  local java=(java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC)
  local program=(-cp "$jcp/jcp.jar:$(printf '%s:' "$jcp"/lib/*.jar)" Jcp)
  echo quit | bounded 60 "${java[@]}" -Xlog:cds=off -XX:ArchiveClassesAtExit="$jcp/classes.jsa" "${program[@]}" 0 \
    "$bin/gcp" >"$jcp/first.log" 2>&1 || { cat "$jcp/first.log" >&2; exit 1; }
  {
    echo '#!/bin/sh'
    echo "exec $(printf '%q ' "${java[@]}" -XX:SharedArchiveFile="$jcp/classes.jsa" "${program[@]}")" '"$@"'
  } >"$jcp/run"
  chmod +x "$jcp/run"
  echo "$stamp" >"$jcp/stamp"
}

main "$@"
