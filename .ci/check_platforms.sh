#!/usr/bin/env bash
# The library, the tool and their examples compile without a warning for Windows and macOS, the library with the default features and with all but
# `tls-aws-lc`. What is compiled is not linked and does not run: see docs/PLATFORMS.md. From the project's root:
#
#   .ci/check_platforms.sh                         all targets
#   .ci/check_platforms.sh x86_64-pc-windows-gnu   this one alone
#
# Needs rustup, for the targets' standard libraries, and Python 3 with pip, for a C compiler. What is missing is installed: the
# targets into the toolchain that is in use, the compiler into target/platforms. A target whose standard library cannot be
# installed is not checked, and the output reports it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. .ci/functions.sh

# All features but `tls-aws-lc`: one library in C is enough to compile for other systems.
FEATURES=client,tls,tls-ring,channel,grpc,tower,metrics,files,csds,channelz,orca,json,rest,control-plane,test-util,unstable-pb,tool-support,fuzzing,rbac,server,spiffe
TARGETS=(x86_64-pc-windows-gnu aarch64-apple-darwin)

main() {
  local targets=("$@") target
  [ $# -gt 0 ] || targets=("${TARGETS[@]}")
  tools=$(target_directory)/platforms
  install_compiler
  export PATH=$tools/python/bin:$PATH PYTHONPATH=$tools/python CARGO_ZIGBUILD_CACHE_DIR=$tools/cache
  export RUSTFLAGS=-Dwarnings
  for target in "${targets[@]}"; do
    if ! install_target "$target"; then
      echo "NOT CHECKED: there is no standard library for $target, and it cannot be installed here" >&2
      continue
    fi
    check "$target" --package xdskit --lib
    check "$target" --package xdskit --no-default-features --features "$FEATURES" --lib --examples
    check "$target" --package xdskit-cli --lib --bins --examples
  done
}

# check TARGET ARGUMENTS...
check() {
  echo "-- cargo check --target $*"
  bounded 900 cargo-zigbuild check --locked --quiet --target "$@"
}

# install_target TARGET: false if that is not possible, as where only package registries can be reached.
install_target() {
  standard_library "$1" || { timeout --kill-after=10 300 rustup target add "$1" && standard_library "$1"; }
}

# standard_library TARGET: whether it is there.
standard_library() {
  compgen -G "$(rustc --print target-libdir --target "$1")/libstd-*.rlib" >/dev/null
}

# Installed anew when another version is required.
install_compiler() {
  local requirements=.ci/platforms/requirements.txt
  ! cmp --silent "$requirements" "$tools/requirements.txt" || return 0
  command -v python3 >/dev/null || fail "python3 is needed, see docs/PLATFORMS.md"
  rm -rf "$tools"
  mkdir -p "$tools"
  bounded 600 python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
    --require-hashes --only-binary :all: --no-deps --target "$tools/python" --requirement "$requirements"
  cp "$requirements" "$tools/requirements.txt"
}

main "$@"
