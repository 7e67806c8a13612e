#!/usr/bin/env bash
# The library and the tool compile with the oldest versions of their dependencies that their manifests permit. From the project's root:
#
#   .ci/check_minimal.sh
#
# Dependencies of dependencies have their newest versions, since their minima are for others to keep.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. .ci/functions.sh

main() {
  CARGO_TARGET_DIR=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")/minimal
  export CARGO_TARGET_DIR
  copy=$(mktemp -d)
  trap 'rm -rf "$copy"' EXIT
  # The working tree, without what is ignored: the lock file there would be another one.
  git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --target-directory "$copy"
  cd "$copy"
  rm Cargo.lock
  # The choice of versions is an unstable option of cargo.
  RUSTC_BOOTSTRAP=1 bounded 120 cargo update --quiet -Z direct-minimal-versions
  bounded 900 cargo check --locked --quiet --all-features --package xdskit --package xdskit-cli
}

main "$@"
