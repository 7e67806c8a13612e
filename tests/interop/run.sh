#!/usr/bin/env bash
# Tests the client against management servers of other projects, and the management server against clients of other
# projects. tests/interop/run.sh [FILTER] runs those tests whose names contain FILTER. See README.md beside it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. .ci/functions.sh

main() {
  local tool
  for tool in go java javac jar mvn node npm python3 setpriv; do
    command -v "$tool" >/dev/null || fail "$tool is needed: see tests/interop/README.md"
  done
  target=$(target_directory)
  bin=$target/interop
  mkdir -p "$bin"
  build_go gcp
  build_gcp_0_12
  build_go strict
  build_go regexes
  build_go grpcgo
  build_go grpcgo_original google.golang.org/grpc/interop/xds/client
  build_go backends/go
  build_java jcp Jcp 0 "$bin/gcp"
  build_java backends/java Backend warm-up
  install_envoy "$bin/envoy"
  install_python tests/interop/backends/python/requirements.txt "$bin/backends/python"
  install_python tests/interop/channelz/requirements.txt "$bin/channelz"
  install_node tests/interop/backends/node "$bin/backends/node"
  cargo build --locked --quiet --example watch --example walk --example relay --example interop_client
  cargo build --locked --quiet --package xdskit-cli --bin xdskit
  XDSKIT_INTEROP_GCP=$bin/gcp XDSKIT_INTEROP_GCP_0_12=$bin/gcp_0_12 XDSKIT_INTEROP_STRICT=$bin/strict XDSKIT_INTEROP_JCP=$bin/jcp/run \
    XDSKIT_INTEROP_ENVOY=$bin/envoy/envoy/_bin/envoy \
    XDSKIT_INTEROP_BACKEND_GO=$bin/backends/go XDSKIT_INTEROP_BACKEND_JAVA=$bin/backends/java/run \
    XDSKIT_INTEROP_BACKEND_PYTHON=$PWD/tests/interop/backends/python/backend.py XDSKIT_INTEROP_PYTHONPATH=$bin/backends/python \
    XDSKIT_INTEROP_CHANNELZ=$PWD/tests/interop/channelz/query.py XDSKIT_INTEROP_CHANNELZ_PYTHONPATH=$bin/channelz \
    XDSKIT_INTEROP_BACKEND_NODE=$PWD/tests/interop/backends/node/backend.js XDSKIT_INTEROP_NODE_PATH=$bin/backends/node/node_modules \
    XDSKIT_INTEROP_WATCH=$target/debug/examples/watch XDSKIT_INTEROP_WALK=$target/debug/examples/walk \
    XDSKIT_INTEROP_RELAY=$target/debug/examples/relay XDSKIT_INTEROP_CLIENT=$target/debug/examples/interop_client \
    XDSKIT_INTEROP_GRPC_GO=$bin/grpcgo XDSKIT_INTEROP_GRPC_GO_ORIGINAL=$bin/grpcgo_original \
    XDSKIT_INTEROP_TOOL=$target/debug/xdskit XDSKIT_INTEROP_REGEXES_GO=$bin/regexes \
    cargo test --locked --test interop -- --test-threads=6 "$@"
}

# build_go FOLDER [PACKAGE]: the program of the folder, or that of another project's package that its go.mod requires.
build_go() (
  package=${2:-.}
  cd "tests/interop/$1"
  export GOFLAGS=-mod=readonly GOTOOLCHAIN=local
  unformatted=$(gofmt -l .)
  [ -z "$unformatted" ] || fail "not formatted by gofmt: $unformatted"
  [ "$package" != . ] || go vet ./...
  go build -o "$bin/$1" "$package"
)

# The same program with go-control-plane 0.12.0, whose caches differ from those of today.
build_gcp_0_12() (
  cd tests/interop/gcp
  export GOFLAGS=-mod=readonly GOTOOLCHAIN=local
  go vet -tags gcp_0_12 -modfile v0_12/go.mod .
  go build -tags gcp_0_12 -modfile v0_12/go.mod -o "$bin/gcp_0_12" .
)

# build_java FOLDER CLASS ARGUMENT...: the program FOLDER/run, compiled again after changes. The arguments are for its first
# start, which ends with the command "quit".
build_java() {
  local folder=$1 class=$2 to=$bin/$1 stamp
  stamp=$(cat "tests/interop/$folder"/* "${BASH_SOURCE[0]}" <(java -version 2>&1) | sha256sum)
  [ "$(cat "$to/stamp" 2>/dev/null)" != "$stamp" ] || return 0
  rm -rf "$to"
  mkdir -p "$to/classes"
  bounded 600 mvn --batch-mode --no-transfer-progress --quiet --file "tests/interop/$folder/pom.xml" \
    -Dmaven.repo.local="$bin/maven" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$to/lib"
  javac -Xlint:all -Werror -proc:none -d "$to/classes" -cp "$to/lib/*" "tests/interop/$folder"/*.java
  jar --create --file "$to/program.jar" -C "$to/classes" .
  # It is started for each test, so its classes are archived for a fast start.
  local java=(java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC)
  local program=(-cp "$to/program.jar:$(printf '%s:' "$to"/lib/*.jar)" "$class")
  echo quit | bounded 60 "${java[@]}" -Xlog:cds=off -XX:ArchiveClassesAtExit="$to/classes.jsa" "${program[@]}" "${@:3}" \
    >"$to/first.log" 2>&1 || { cat "$to/first.log" >&2; exit 1; }
  {
    echo '#!/bin/sh'
    echo "exec $(printf '%q ' "${java[@]}" -XX:SharedArchiveFile="$to/classes.jsa" "${program[@]}")" '"$@"'
  } >"$to/run"
  chmod +x "$to/run"
  echo "$stamp" >"$to/stamp"
}

# install_node FOLDER TO: the packages from npm that the folder's package-lock.json has, installed again for other versions.
install_node() {
  ! cmp --silent "$1/package-lock.json" "$2/package-lock.json" || return 0
  rm -rf "$2" "$2.new"
  mkdir -p "$2.new"
  cp "$1"/package*.json "$2.new"
  (cd "$2.new" && bounded 600 npm ci --silent --ignore-scripts --no-audit --no-fund)
  mv "$2.new" "$2"
}

main "$@"
