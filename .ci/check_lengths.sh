#!/usr/bin/env bash
# No Rust file of ours has more than 500 lines. From the project's root: .ci/check_lengths.sh [MAX=500]
set -euo pipefail
max=${1:-500}
[ -d src ] || { echo "no src/ here" >&2; exit 1; }

mapfile -d '' files < <(find build.rs src crates tests examples fuzz benches -path fuzz/target -prune -o -name '*.rs' -type f -print0 2>/dev/null)
long=$(wc -l "${files[@]}" | awk -v max="$max" '$2 != "total" && $1 > max { printf "%s: %d lines\n", $2, $1 }')
if [ -n "$long" ]; then
  printf 'longer than %d lines:\n%s\n' "$max" "$long" >&2
  exit 1
fi
printf '%d files, none longer than %d lines\n' "${#files[@]}" "$max"
