#!/usr/bin/env bash
# The library and the tool compile with the oldest Rust that Cargo.toml names as `rust-version`. From the project's root:
#
#   .ci/check_msrv.sh
#
# Needs rustup. A toolchain that is missing is installed; where that is not possible, nothing is checked, and the output reports it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. .ci/functions.sh

main() {
  local version
  version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
  [ -n "$version" ] || fail "Cargo.toml has no rust-version"
  if ! install_toolchain "$version"; then
    echo "NOT CHECKED: Rust $version is not there, and cannot be installed here" >&2
    return
  fi
  cargo "+$version" --version
  export RUSTFLAGS=-Dwarnings CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/msrv
  bounded 900 cargo "+$version" check --locked --quiet --workspace --features xdskit/test-util,xdskit/metrics,xdskit/tower,xdskit/csds,xdskit/channelz,xdskit/orca
}

# install_toolchain VERSION: false if that is not possible, as where only package registries can be reached.
install_toolchain() {
  cargo "+$1" --version >/dev/null 2>&1 ||
    timeout --kill-after=10 300 rustup toolchain install "$1" --profile minimal --no-self-update >/dev/null 2>&1
}

main "$@"
