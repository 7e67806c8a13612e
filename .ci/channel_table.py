#!/usr/bin/env python3
"""The tables of docs/spec/CHANNEL.md: the tests of each rule of the channel, of the cases of psm-interop, and of defects of other clients;
and that of docs/LOAD_REPORTS.md: the tests of each rule of load reports.

From the project's root:
    .ci/channel_table.py          fails if a rule has neither a test nor a reason, if a test is missing, or the table is out of date
    .ci/channel_table.py --write  writes the tests of each rule

A test is of the rules that its name begins with, in either group: `ch3_54_...`, `ch3_13_ch3_7_...`, `lr3_3_ch13_3_...`. A rule that cannot have a test has the reason in
its cell instead, in at least four words without quoted names. All other rows name their tests by hand.
"""

import pathlib
import re
import sys

TABLES = {"CH": pathlib.Path("docs/spec/CHANNEL.md"), "LR": pathlib.Path("docs/LOAD_REPORTS.md")}
RULES = pathlib.Path("docs/spec/RULES.md")


def tests(group):
    """The tests of a group of rules by rule, and the names of all."""
    found, names = {}, set()
    prefix = group.lower()
    name_of = re.compile(r"\bfn ((?:ch|lr)\d+_\w+)\s*\(")
    for path in sorted(p for folder in ("src", "crates", "tests") for p in pathlib.Path(folder).rglob("*.rs")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            match = name_of.search(line)
            if not match:
                continue
            attributes = "\n".join(lines[max(0, number - 4) : number])
            if "test" not in attributes and "#[apply(" not in attributes:
                continue
            name = match.group(1)
            if "#[ignore" in attributes:
                sys.exit(f"{path}: {name} is ignored")
            front = re.match(r"(?:(?:ch|lr)\d+_\d+_)*", name).group()
            rules = re.findall(rf"{prefix}(\d+)_(\d+)_", front)
            if rules or name.startswith(prefix):
                names.add(name)
            for section, rule in rules:
                found.setdefault(f"{group}{section}.{rule}", set()).add(name)
    return found, names


def check(group, table):
    """Checks the table of a group of rules, or writes it; returns what is wrong."""
    found, names = tests(group)
    row_of = re.compile(rf"^\| ({group}\d+\.\d+) \| (.*) \|$")
    quoted = re.compile(rf"`({group.lower()}\d+_\w+)`")
    problems, rows, seen = [], [], set()
    for line in table.read_text().splitlines():
        row = row_of.match(line)
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
            problems += [f"no such test: {name}" for name in quoted.findall(line) if name not in names]
        rows.append(line)
    known = set(re.findall(rf"^\| ({group}\d+\.\d+) \|", RULES.read_text(), re.M))
    problems += [f"{rule} has no row in {table}" for rule in sorted((set(found) | known) - seen)]
    problems += [f"{rule} has no row in {RULES}" for rule in sorted(seen - known)]
    made = "\n".join(rows) + "\n"
    if "--write" in sys.argv[1:]:
        table.write_text(made)
    elif made != table.read_text():
        problems.append(f"{table} is not what the tests make of it: .ci/channel_table.py --write")
    print(f"{table}: {len(seen)} rules, {len(names)} tests")
    return problems


def main():
    problems = [problem for group, table in TABLES.items() for problem in check(group, table)]
    if problems:
        sys.exit("\n".join(problems))


main()
