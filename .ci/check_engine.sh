#!/usr/bin/env bash
# The engine stays a router between rooms: outside of tests and the simulation, `impl Engine` stands in one file, and no
# other file of the engine takes one. From the project's root: .ci/check_engine.sh
set -euo pipefail
[ -f src/engine/mod.rs ] || { echo "no src/engine/mod.rs here" >&2; exit 1; }

bad=0
while IFS= read -r found; do
  echo "$found: only src/engine/mod.rs implements or takes the Engine" >&2
  bad=1
done < <(grep -rnE --include='*.rs' '^ *impl(<[^>]*>)? ([A-Za-z_:]+(<[^>]*>)? for )?Engine\b|&(mut )?Engine\b' src/engine \
  | grep -vE '^src/engine/(mod\.rs|tests/|simulation/)' || true)

blocks=$(grep -cE '^impl Engine\b' src/engine/mod.rs)
if [ "$blocks" -ne 1 ]; then
  echo "src/engine/mod.rs has $blocks blocks of impl Engine, and not one" >&2
  bad=1
fi

# A room's fields are its own: nothing outside of it names them, so none is public to the engine.
for room in store/mod authorities/mod ingest/mod collections/mod delivery resolutions; do
  file="src/engine/$room.rs"
  public=$(perl -0ne 'while (/^pub\(super\) struct (Store|Authorities|Ingest|Indirections|Delivery|Resolutions) \{(.*?)^\}/msg) { print "$1: $_\n" for grep { /^    pub/ && !/members: Members/ } split /\n/, $2 }' "$file")
  if [ -n "$public" ]; then
    echo "$file: a room with a public field: $public" >&2
    bad=1
  fi
done
[ "$bad" -eq 0 ] && echo "impl Engine stands in one file, and six rooms keep their fields"
exit "$bad"
