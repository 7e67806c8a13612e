#!/usr/bin/env bash
# Each rule has one row in its table, which ends with tests named after it, that exist, or with the reason why there is none.
# From the project's root: .ci/check_rules.sh
set -euo pipefail

# check TABLE PREFIX NUMBER: the rules PREFIX1 to PREFIXn; tests of B2.7 have "b2_7_" in their names.
check() {
  local table=$1 prefix=$2 last=$3 number rule mark row cell names problems=0 tests=()
  [ -f "$table" ] || { echo "no $table here" >&2; return 1; }
  for ((number = 1; number <= last; number++)); do
    rule=$prefix$number
    mark=$(tr 'A-Z.' 'a-z_' <<<"$rule")_
    row=$(grep -E "^\| ${rule//./\\.} " "$table" || true)
    if [ "$(grep -c . <<<"$row")" -ne 1 ]; then
      echo "$table: not one row of $rule" >&2
      problems=1
      continue
    fi
    cell=$(sed -nE 's/^.*\|([^|]*)\|$/\1/p' <<<"$row")
    mapfile -t names < <(grep -oE '`[a-z0-9_]+`' <<<"$cell" | grep -F _ | tr -d '`' || true)
    tests+=("${names[@]}")
    if [ "${#names[@]}" -eq 0 ]; then
      [ "$(wc -w <<<"$cell")" -ge 5 ] && continue
      echo "$table: neither a test of $rule nor a reason" >&2
      problems=1
    elif ! grep -qE "(^| |_)$mark" <<<"${names[*]}"; then
      echo "$table: no test of $rule is named after it" >&2
      problems=1
    fi
  done
  .ci/tests_exist.sh "${tests[@]}" || problems=1
  [ "$problems" -eq 0 ] || return 1
  printf '%s: %d rules, %d tests, all of them there\n' "$table" "$last" "${#tests[@]}"
}

failed=0
check docs/INCREMENTAL.md B2. 35 || failed=1
check docs/XDSTP.md X 24 || failed=1
exit "$failed"
