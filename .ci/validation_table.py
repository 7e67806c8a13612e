#!/usr/bin/env python3
"""The table of docs/spec/VALIDATION.md: which tests show that a rule accepts, and which that it rejects or leaves out.

From the project's root:
    .ci/validation_table.py          fails if a rule has no test, or the table is not the one that the tests make
    .ci/validation_table.py --write  writes the table

A test is of a rule whose id its name begins with, or one of several such ids: `l3_rejects_...`, `s14_s15_ignores_...`.
Where a rule has no such side at all, its cell holds the reason instead, and stays as it is written.
"""

import pathlib
import re
import sys

TABLE = pathlib.Path("docs/spec/VALIDATION.md")
SIDES = {"accepts": 0, "rejects": 1, "ignores": 1}
ROW = re.compile(r"^\| ([A-Z]+[0-9]+) \| (.*?) \| (.*?) \| (.*?) \|$")
TEST = re.compile(r"fn (((?:[a-z]+[0-9]+_)+)(accepts|rejects|ignores)_\w+)\(")


def tests():
    """The names of the tests by rule and side."""
    found = {}
    for path in sorted(p for folder in ("src", "crates", "tests") for p in pathlib.Path(folder).rglob("*.rs")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            match = TEST.search(line)
            if not match:
                continue
            attributes = "\n".join(lines[max(0, number - 4) : number])
            if "#[test]" not in attributes and "::test" not in attributes and "proptest!" not in attributes:
                continue
            name, rules, side = match.groups()
            if "#[ignore" in attributes:
                sys.exit(f"{path}: {name} is ignored")
            for rule in rules.strip("_").split("_"):
                found.setdefault((rule.upper(), SIDES[side]), []).append(name)
    return found


def table(text, found):
    """The text with its rows made anew, and what is wrong with them."""
    problems, rows, seen = [], [], set()
    for line in text.splitlines():
        match = ROW.match(line)
        if match:
            rule, what, *cells = match.groups()
            if rule in seen:
                problems.append(f"{rule} has two rows")
            seen.add(rule)
            for side in (0, 1):
                names = found.get((rule, side))
                if names:
                    cells[side] = "<br>".join(f"`{name}`" for name in sorted(set(names)))
                elif "`" in cells[side] or len(cells[side].split()) < 4:
                    cells[side] = ""
                    problems.append(f"{rule}: no test that {('accepts', 'rejects')[side]}, and no reason why")
            line = f"| {rule} | {what} | {cells[0]} | {cells[1]} |"
        rows.append(line)
    kinds = {kind(rule) for rule in seen}
    stray = sorted(rule for rule in {rule for rule, _ in found} - seen if kind(rule) in kinds)
    problems += [f"{rule} has no row" for rule in stray]
    return "\n".join(rows) + "\n", problems, len(seen)


def kind(rule):
    return rule.rstrip("0123456789")


def main():
    found = tests()
    text = TABLE.read_text()
    made, problems, rules = table(text, found)
    if "--write" in sys.argv[1:]:
        TABLE.write_text(made)
    elif made != text:
        problems.append(f"{TABLE} is not what the tests make of it: .ci/validation_table.py --write")
    if problems:
        sys.exit("\n".join(problems))
    print(f"{TABLE}: {rules} rules, {len({name for names in found.values() for name in names})} tests")


main()
