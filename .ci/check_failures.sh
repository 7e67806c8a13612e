#!/usr/bin/env bash
# Each row of the tables in docs/spec/FAILURES.md ends with the tests that show it; all of them exist, and none is ignored.
# From the project's root: .ci/check_failures.sh
set -euo pipefail
table=docs/spec/FAILURES.md
[ -f "$table" ] || { echo "no $table here" >&2; exit 1; }

rows=$(grep -c '^| [^-]' "$table")
# The last cell of a row: names in backticks.
mapfile -t tests < <(sed -nE 's/^\| .*\|([^|]*)\|$/\1/p' "$table" | grep -oE '`[a-z0-9_]+`' | tr -d '`' | sort -u)
[ "${#tests[@]}" -gt 50 ] || { echo "found only ${#tests[@]} tests in $rows rows of $table" >&2; exit 1; }

missing=0
bare=$(grep -E '^\| ' "$table" | grep -vE '^\| (what|---|server)' | grep -vE '`[a-z0-9_]+`[^|]*\|$' || true)
[ -z "$bare" ] || { printf 'rows without a test:\n%s\n' "$bare" >&2; missing=1; }
.ci/tests_exist.sh "${tests[@]}" || missing=1
[ "$missing" -eq 0 ] || exit 1
printf '%d rows, %d tests, all of them there\n' "$rows" "${#tests[@]}"
