#!/usr/bin/env bash
# All these tests exist, and none is ignored. From the project's root: .ci/tests_exist.sh NAME...
set -euo pipefail

missing=0
for test in "$@"; do
  found=$(grep -rnE -B4 --include='*.rs' "fn $test\(" src crates tests || true)
  if [ -z "$found" ]; then
    echo "no such test: $test" >&2
    missing=1
  elif grep -q '#\[ignore' <<<"$found"; then
    echo "ignored: $test" >&2
    missing=1
  fi
done
exit "$missing"
