#!/usr/bin/env bash
# Writes proto/generated/ anew from the files in proto/. From the project's root:
#
#   .ci/generate.sh           after a change of a .proto
#   .ci/generate.sh --check   fails if something was to be written
#
# build.rs does it, in a build of the crate with `--cfg xdskit_generate`; see there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A target folder of its own, since the flag makes all crates others. A change of a .proto alone does not always run build.rs again.
touch build.rs
RUSTFLAGS="--cfg xdskit_generate" cargo check --locked --quiet --package xdskit --lib --no-default-features --target-dir target/generate

if [ "${1:-}" = --check ]; then
  changed=$(git status --porcelain -- proto/generated)
  if [ -n "$changed" ]; then
    echo "proto/generated is not what proto/ makes of it: run .ci/generate.sh and commit it" >&2
    echo "$changed" >&2
    exit 1
  fi
fi
