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
