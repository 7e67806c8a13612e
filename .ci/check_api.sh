#!/usr/bin/env bash
# The public API of the library: each item is in `.ci/api/xdskit.txt`, so that a change of it is a change of that file, and crates whose types
# are in it are those of the table in README.md. From the project's root:
#
#   .ci/check_api.sh           compares
#   .ci/check_api.sh --write   writes the file anew: an item that has gone or differs breaks users, see RELEASING.md
#
# Messages of protobuf, the fuzzer's world and what the tool needs are exempt from semantic versioning, and left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. .ci/functions.sh

VERSION=0.52.0 # which has the format of the compiler's output
FILE=.ci/api/xdskit.txt

main() {
  local crates allowed
  listed=$(mktemp)
  trap 'rm -f "$listed"' EXIT
  install
  list >"$listed"
  [ "$(wc -l <"$listed")" -gt 1000 ] || fail "the API has only $(wc -l <"$listed") items"
  crates=$(grep -oP '(?<![:\w])[a-z_]\w*(?=::)' "$listed" | sed 's/^serde_core$/serde/' | sort -u | grep -vxE 'xdskit|core|alloc|std')
  # The first column of the README's table.
  allowed=$(sed -n '/^## Crates in the public API/,/^## Documentation/p' README.md | grep -oP '^\| `\K[a-z_]+' | sort -u)
  [ "$crates" = "$allowed" ] ||
    fail "the table of crates in README.md differs from the API:"$'\n'"$(diff <(echo "$allowed") <(echo "$crates") || true)"
  if [ "${1:-}" = --write ]; then
    cp "$listed" "$FILE"
  else
    diff --unified=0 "$FILE" "$listed" || fail "the public API differs from $FILE; if that is meant: .ci/check_api.sh --write"
  fi
  echo "$(wc -l <"$listed") items, with types of $(wc -w <<<"$crates") other crates"
}

# The compiler describes the API by an option that is an unstable one.
list() {
  RUSTC_BOOTSTRAP=1 bounded 900 cargo "+$(rustup show active-toolchain | cut -d' ' -f1)" public-api --package xdskit --all-features \
    --omit blanket-impls,auto-trait-impls,auto-derived-impls | grep -vE '\b(xdskit::(pb|fuzzing|tool_support)|pin_project_lite::__private)\b'
}

install() {
  [ "$(cargo public-api --version 2>/dev/null)" = "cargo-public-api $VERSION" ] ||
    CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=64 CARGO_PROFILE_RELEASE_DEBUG=0 \
      bounded 1200 cargo install --locked --quiet "cargo-public-api@$VERSION"
  export PATH=$PATH:${CARGO_INSTALL_ROOT:-${CARGO_HOME:-$HOME/.cargo}}/bin
}

main "$@"
