#!/usr/bin/env bash
# Tests the examples of the README and of the other documents as a reader would use them: each Rust block becomes the `main.rs` of an
# application of its own, with the dependencies that its document names, and runs against an embedded management server; its
# output is checked. From the project's root: tests/trial.sh
#
# A block has the dependencies of the README's first TOML block, and of the TOML blocks in its document since the Rust block
# before it. It is pasted as it is. Its expected output is in `expect`; a block that is not listed there is a failure, and so is
# an entry without a block. The application `tests/trial/crypto.rs` runs in the same way, since the crate's own tests have another
# choice of features.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. .ci/functions.sh

# The documents with whole programs; those without a Rust block are listed so that a new one is tested. The guides and the other pages
# on channels are not listed: their blocks need other servers, or are no programs, and documentation tests compile them.
documents=(README.md docs/{channel/README,channel/generated,TRANSPORTS,BOOTSTRAP,OPERATING,TESTING,CLI,RELAY}.md)
# The blocks in `expect`.
examples=(channel page resolve watch csds channelz metrics recorder observe testing applied generated)

main() {
  root=$PWD
  CARGO_TARGET_DIR=$(target_directory)
  export CARGO_TARGET_DIR
  # A fixed directory, so that compiled crates are reused.
  scratch=$CARGO_TARGET_DIR/trial
  rm -rf "$scratch"
  mkdir -p "$scratch"
  trap finish EXIT
  # The README's `path = "../xdskit"`, seen from an application.
  ln -s "$root" "$scratch/xdskit"
  mkdir "$scratch/blocks"
  local document block
  for document in "${documents[@]}"; do
    split "$document"
  done
  add_application server "$root/tests/trial/server.rs" \
    'xdskit = { path = "../xdskit", features = ["test-util"] }' \
    'tokio = { version = "1", features = ["rt-multi-thread", "macros", "net"] }' \
    'tonic = { version = "0.14", features = ["transport"] }'
  start_server
  local tried=()
  for block in "$scratch"/blocks/*.rs; do
    try "$block"
    tried+=("$what")
  done
  try_crypto
  local missing
  missing=$(comm -3 <(printf '%s\n' "${examples[@]}" | sort) <(printf '%s\n' "${tried[@]}" | sort))
  [ -z "$missing" ] || fail "not tried exactly once: ${missing//[[:space:]]/ }"
  echo "${#tried[@]} blocks, all of them do what they should"
}

# split DOCUMENT: each of its Rust blocks as blocks/PATH_LINE.rs, with its dependencies in blocks/PATH_LINE.toml and its place in
# blocks/PATH_LINE.place. The first TOML block of the README becomes blocks/first.toml. A Rust block that calls `tonic_prost_build` is the
# build.rs of the next one, blocks/PATH_LINE.build, whose shop.proto is the protobuf block before it, blocks/PATH_LINE.proto.
split() {
  local name
  name=$(tr 'A-Z/' 'a-z_' <<<"${1%.md}")
  awk -v into="$scratch/blocks" -v name="$name" -v document="$1" '
    /^```/ && kind != "" {
      if (kind == "rust" && text ~ /tonic_prost_build/) {
        build = text
      } else if (kind == "rust") {
        block = into "/" name "_" sprintf("%04d", start)
        printf "%s", text > (block ".rs")
        printf "%s", toml > (block ".toml")
        printf "%s:%d", document, start > (block ".place")
        if (build != "") {
          printf "%s", build > (block ".build")
          printf "%s", proto > (block ".proto")
        }
        toml = build = proto = ""
      } else if (kind == "proto") {
        proto = text
      } else if (kind == "toml") {
        if (document == "README.md" && first == "") first = text
        else toml = toml text
      }
      kind = ""; next
    }
    /^```rust/ { kind = "rust"; start = NR; text = ""; next }
    /^```toml/ { kind = "toml"; text = ""; next }
    /^```proto/ { kind = "proto"; text = ""; next }
    /^```/ { kind = "other"; text = ""; next }
    kind != "" { text = text $0 "\n" }
    END { if (document == "README.md") printf "%s", first > (into "/first.toml") }
  ' "$1"
}

# place NAME: the document and line of an application, or of a variant of it.
place() {
  cat "$scratch/blocks/${1%%-*}.place"
}

# add_application NAME MAIN DEPENDENCY...: an application beside the others. Of dependencies with one name the last counts. It has the
# dependencies of its build.rs in `build_dependencies`, if its block has one.
add_application() {
  local name=$1 main=$2
  shift 2
  mkdir -p "$scratch/$name/src"
  cp "$main" "$scratch/$name/src/main.rs"
  if [ -e "$scratch/blocks/$name.build" ]; then
    cp "$scratch/blocks/$name.build" "$scratch/$name/build.rs"
    cp "$scratch/blocks/$name.proto" "$scratch/$name/shop.proto"
  fi
  # The versions and the compiled crates are those of the crate's own tests.
  cp "$root/Cargo.lock" "$scratch/$name/"
  {
    printf '[package]\nname = "trial-%s"\nversion = "0.0.0"\nedition = "2024"\n\n[workspace]\n\n[dependencies]\n' "$name"
    printf '%s\n' "$@" | awk -F ' *= *' 'NF > 1 { line[$1] = $0 } END { for (name in line) print line[name] }'
    [ ! -e "$scratch/blocks/$name.build" ] || printf '%s\n' '' '[build-dependencies]' "${build_dependencies[@]}"
    printf '\n[profile.dev]\ndebug = "line-tables-only"\n\n[profile.dev.package."*"]\ndebug = false\n'
  } >"$scratch/$name/Cargo.toml"
  bounded 600 cargo build --quiet --manifest-path "$scratch/$name/Cargo.toml"
}

start_server() {
  "$CARGO_TARGET_DIR/debug/trial-server" "$scratch/bootstrap.json" &
  server=$!
  until_true 10 test -e "$scratch/bootstrap.json" || fail "the server does not start"
}

# try BLOCK: builds it, runs it, and checks its behavior.
try() {
  local name main=$1 dependencies
  name=$(basename "$main" .rs)
  expect "$main"
  echo "-- $(place "$name"): $what"
  mapfile -t dependencies < <(
    { cat "$scratch/blocks/first.toml"; sed '/^\[build-dependencies\]/,$d' "${main%.rs}.toml"; } | grep -E '^[a-z_-]+ *= '
  )
  mapfile -t build_dependencies < <(sed '1,/^\[build-dependencies\]/d' "${main%.rs}.toml" | grep -E '^[a-z_-]+ *= ')
  add_application "$name" "$main" "${dependencies[@]}"
  "$check" "$name"
}

# The feature `tls` alone, in an application whose other crates use rustls with its default features.
try_crypto() {
  echo tests/trial/crypto.rs >"$scratch/blocks/crypto.place"
  echo "-- $(place crypto): tls"
  add_application crypto "$root/tests/trial/crypto.rs" \
    'xdskit = { path = "../xdskit", default-features = false, features = ["tls", "test-util"] }' \
    'rcgen = { version = "0.14", default-features = false, features = ["aws_lc_rs", "crypto", "pem"] }' \
    'rustls = "0.23"' \
    'tempfile = "3"' \
    'tokio = { version = "1", features = ["rt-multi-thread", "macros"] }'
  expected='TLS by the default of the process'
  ends crypto
}

# expect BLOCK: its description, its check, and its expected output.
expect() {
  case $(cat "$1") in
    *'Inspected<'*) what=observe check=ends expected='cart, version ' ;;
    *'fn choose('*) what=resolve check=ends expected='send it to Some(127.0.0.1:' ;;
    *'tonic::include_proto!'*) what=generated check=ends expected='failed with Unimplemented: ' ;;
    *'ChannelzService'*) what=channelz check=listens expected=18001 ;;
    *'.wait_until_applied('*) what=applied check=ends expected='' ;;
    *'.wait_ready('*) what=page check=ends expected='answered: Some("12")' ;;
    *'Channel::builder('*) what=channel check=calls expected='answered: Some("12")' ;;
    *'ClientStatusService'*) what=csds check=listens expected=18001 ;;
    *'Metrics::new'*) what=metrics check=ends expected='counted: 1 endpoints' ;;
    *'impl Recorder for'*) what=recorder check=ends expected='counted: 1 endpoints' ;;
    *'TestControlPlane::start()'*) what=testing check=ends expected='' ;;
    *'watch::<Cluster>("cart")'*) what=watch check=prints expected='use Cluster' ;;
    *) fail "tests/trial.sh does not know the Rust block at $(place "$(basename "$1" .rs)"): add it to expect" ;;
  esac
}

# prints NAME: it runs until it is stopped, and prints the expected output before.
prints() {
  run "$1" bootstrap.json
  until_true 10 grep --quiet --fixed-strings "$expected" "$scratch/$1.out" || show "$1" "it does not print: $expected"
  stop
}

# listens NAME: it runs until it is stopped, and listens on the expected port.
listens() {
  run "$1" bootstrap.json
  until_true 10 connects "$expected" || show "$1" "nobody listens on port $expected"
  kill -0 "$application" 2>/dev/null || show "$1" "it has ended"
  stop
}

# ends NAME: it ends by itself without an error, and prints the expected output.
ends() {
  run "$1" bootstrap.json
  await 30 || show "$1" "exit code $code"
  [ -z "$expected" ] || grep --quiet --fixed-strings "$expected" "$scratch/$1.out" || show "$1" "it does not print: $expected"
}

# calls NAME: it ends, and if no call can be sent its answer is UNAVAILABLE.
calls() {
  ends "$1"
  variant "$1" -target 's#xds:///shop#xds:///shpo#'
  run "$1-target" bootstrap.json
  await 30 || show "$1-target" "exit code $code"
  expected='answered: Some("14")'
  grep --quiet --fixed-strings "$expected" "$scratch/$1-target.out" || show "$1-target" "it does not print: $expected"
}

# variant NAME SUFFIX EDIT: the same application with an edited main.rs.
variant() {
  sed "$3" "$scratch/$1/src/main.rs" >"$scratch/main.rs"
  ! cmp --silent "$scratch/main.rs" "$scratch/$1/src/main.rs" || show "$1" "nothing to edit: $3"
  add_application "$1$2" "$scratch/main.rs" "${dependencies[@]}"
}

# run NAME BOOTSTRAP: starts it as `application`.
run() {
  GRPC_XDS_BOOTSTRAP=$scratch/$2 "$CARGO_TARGET_DIR/debug/trial-$1" >"$scratch/$1.out" 2>"$scratch/$1.err" &
  application=$!
}

# await SECONDS: whether the application ends within that time, and with exit code 0.
await() {
  code=none
  until_true "$1" has_ended || { stop; return 1; }
  code=0
  wait "$application" || code=$?
  application=
  [ "$code" -eq 0 ]
}

has_ended() {
  ! kill -0 "$application" 2>/dev/null
}

stop() {
  kill "$application" 2>/dev/null || true
  wait "$application" 2>/dev/null || true
  application=
}

connects() {
  (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# until_true SECONDS COMMAND...: whether it succeeds within that time.
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.1
  done
}

# show NAME REASON: fails with the output of the application.
show() {
  tail -n 20 "$scratch/$1.out" "$scratch/$1.err" >&2 || true
  fail "$(place "$1"): $2"
}

finish() {
  local status=$?
  local process
  for process in "${application:-}" "${server:-}"; do
    [ -z "$process" ] || kill "$process" 2>/dev/null || true
  done
  exit "$status"
}

main "$@"
