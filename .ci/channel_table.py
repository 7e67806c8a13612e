#!/usr/bin/env python3
"""The tables of docs/CHANNEL.md: the tests of each rule of the channel, of the cases of psm-interop, and of defects of other clients.

From the project's root:
    .ci/channel_table.py          fails if a rule has neither a test nor a reason, if a test is missing, or the table is out of date
    .ci/channel_table.py --write  writes the tests of each rule

A test is of the rules that its name begins with: `ch3_54_...`, `ch3_13_ch3_7_...`. A rule that cannot have a test has the reason in
its cell instead, in at least four words without quoted names. All other rows name their tests by hand.
"""

import pathlib
import re
import sys

TABLE = pathlib.Path("docs/CHANNEL.md")
RULES = pathlib.Path("docs/RULES.md")
ROW = re.compile(r"^\| (CH\d+\.\d+) \| (.*) \|$")
QUOTED = re.compile(r"`(ch\d+_\w+)`")
NAME = re.compile(r"\bfn (ch\d+_\w+)\s*\(")


def tests():
    """The tests by rule, and the names of all."""
    found, names = {}, set()
    for path in sorted(p for folder in ("src", "tests") for p in pathlib.Path(folder).rglob("*.rs")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            match = NAME.search(line)
            if not match:
                continue
            attributes = "\n".join(lines[max(0, number - 4) : number])
            if "test" not in attributes and "#[apply(" not in attributes:
                continue
            name = match.group(1)
            if "#[ignore" in attributes:
                sys.exit(f"{path}: {name} is ignored")
            names.add(name)
            for section, rule in re.findall(r"ch(\d+)_(\d+)_", re.match(r"(?:ch\d+_\d+_)*", name).group()):
                found.setdefault(f"CH{section}.{rule}", set()).add(name)
    return found, names


def main():
    found, names = tests()
    problems, rows, seen = [], [], set()
    for line in TABLE.read_text().splitlines():
        row = ROW.match(line)
        if row:
            rule, cell = row.groups()
            if rule in seen:
                problems.append(f"{rule} has two rows")
            seen.add(rule)
            if rule in found:
                cell = "<br>".join(f"`{name}`" for name in sorted(found[rule]))
            elif "`" in cell or len(cell.split()) < 4:
                cell = ""
                problems.append(f"{rule}: no test, and no reason why")
            line = f"| {rule} | {cell} |"
        else:
            problems += [f"no such test: {name}" for name in QUOTED.findall(line) if name not in names]
        rows.append(line)
    known = set(re.findall(r"^\| (CH\d+\.\d+) \|", RULES.read_text(), re.M))
    problems += [f"{rule} has no row in {TABLE}" for rule in sorted((set(found) | known) - seen)]
    problems += [f"{rule} has no row in {RULES}" for rule in sorted(seen - known)]
    made = "\n".join(rows) + "\n"
    if "--write" in sys.argv[1:]:
        TABLE.write_text(made)
    elif made != TABLE.read_text():
        problems.append(f"{TABLE} is not what the tests make of it: .ci/channel_table.py --write")
    if problems:
        sys.exit("\n".join(problems))
    print(f"{TABLE}: {len(seen)} rules, {len(names)} tests")


main()
