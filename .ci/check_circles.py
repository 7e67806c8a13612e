#!/usr/bin/env python3
"""Forbids circles of files: files of the library, or of the tool, that use each other, directly or by way of others.

A module and those below it may use each other, as one is made of the other. A name that a module re-exports or imports for those below
it counts as a use of the file that defines it, and a path in an expression counts as a `use`. Tests and simulations are left out.
Each circle is printed with its shortest path. From the project's root:

    .ci/check_circles.py          fails if there is a circle that REMAINING does not contain
    .ci/check_circles.py --edges  prints which files of each circle use which
"""

import pathlib
import re
import sys

# Circles that are tolerated, each as the set of its files below the root of their crate, without their endings. There are none, and none is to be added.
REMAINING = []

SOURCES = [pathlib.Path("src"), pathlib.Path("crates/xdskit-cli/src")]
LEFT_OUT = re.compile(r"(^|/)(tests|simulation|fixture|samples)(/|\.rs$)")
LITERAL = re.compile(r"""//[^\n]*|/\*.*?\*/|\bb?r(\#*)".*?"\1|"(?:\\.|[^"\\])*"|'(?:\\[^']+|[^'\\\n])'""", re.S)
TEST_MODULE = re.compile(r"^#\[cfg\((?:test|all\(test[^\]]*)\)\]\s*(?:pub(?:\([^)]*\))? )?mod \w+ \{.*", re.M | re.S)
TEST_USE = re.compile(r"#\[cfg\((?:test|all\(test[^\]]*)\)\]\s*(?:pub(?:\([^)]*\))?\s+)?use\s[^;]+;")
USE = re.compile(r"^[ \t]*(?:pub(?:\([^)]*\))?[ \t]+)?use\s+([^;]+);", re.M)
PATH = re.compile(r"\b(?:crate|super)(?:::\w+)+")


def main():
    problems = sum(problems_of(Crate(source)) for source in SOURCES)
    if problems:
        sys.exit(1)


def problems_of(crate):
    """Prints the circles of a crate, and returns the number of those that are not known."""
    edges = crate.edges()
    found = circles(edges)
    problems = 0
    for members in sorted(found, key=lambda members: (len(members), sorted(members))):
        files = {name(module) for module in members}
        if not any(files <= known for known in REMAINING):
            problems += 1
            print(f"{len(members)} files use each other, such as {' -> '.join(shortest(members, edges))}", file=sys.stderr)
        if sys.argv[1:] == ["--edges"]:
            for module in sorted(members):
                print(*(f"{name(module)} -> {name(other)}" for other in sorted(edges[module] & members)), "", sep="\n")
    in_circles = {name(module) for members in found for module in members}
    for known in REMAINING:
        if crate.has(known) and not known <= in_circles:
            problems += 1
            print(f"no longer in a circle, to be removed from REMAINING: {', '.join(sorted(known - in_circles))}", file=sys.stderr)
    print(f"{crate.source}: {len(edges)} files, {len(found)} circles" + (", all of them known" if found and not problems else ""))
    return problems


def name(module):
    """The path of a module's file below the root of its crate, as REMAINING has it."""
    return "/".join(module)


class Crate:
    """The modules that have files, each a tuple of names, with their code and the paths that the names in them stand for."""

    def __init__(self, source):
        self.source = source
        paths = (path for path in source.rglob("*.rs") if not LEFT_OUT.search(str(path.relative_to(source))))
        self.code = {module_of(path.relative_to(source)): code_of(path.read_text()) for path in paths}
        # The path that an imported name stands for. Those below a module see its imports, and others those that are public.
        self.imports = {}
        for module, code in self.code.items():
            for path, local in imported(code):
                target = self.absolute(path, module)
                if target and local != "_":
                    self.imports.setdefault(module + (local,), target)

    def has(self, files):
        """Whether all these files are in the crate."""
        return files <= {name(module) for module in self.code}

    def edges(self):
        """The modules that each module uses, but for those above and below it."""
        return {module: {other for other in self.used_by(module) if not are_kin(module, other)} for module in self.code}

    def used_by(self, module):
        """The modules that a module uses."""
        code = self.code[module]
        paths = [path for path, _ in imported(code)]
        paths += [tuple(path.split("::")) for path in PATH.findall(USE.sub("", code))]
        found = {self.file_of(self.absolute(path, module)) for path in paths}
        return found - {None}

    def absolute(self, path, module):
        """The absolute path of a path in a module; None for one of another crate."""
        path, here = list(path), list(module)
        if path[-1] == "self":
            path.pop()
        if not path:
            return None
        if path[0] == "crate":
            return tuple(path[1:])
        if path[0] not in ("self", "super"):
            return module + tuple(path) if module + (path[0],) in self.code else None
        if path[0] == "self":
            path.pop(0)
        while path and path[0] == "super":
            path.pop(0)
            here = here[:-1]
        return tuple(here + path)

    def file_of(self, path):
        """The module whose file defines what a path names, past imports; None for no path, and for the root of the crate."""
        seen = set()
        while path and path not in seen:
            seen.add(path)
            heads = (path[:length] for length in range(len(path), 0, -1))
            head = next((head for head in heads if head in self.code or head in self.imports), None)
            if head is None:
                return None
            if head in self.code:
                return head
            path = self.imports[head] + path[len(head) :]
        return None


def module_of(path):
    """The module of a file."""
    parts = path.with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib") else parts


def code_of(text):
    """The code of a file without text, comments and tests."""
    text = LITERAL.sub(lambda found: "" if found[0].startswith("/") else '""', text)
    return TEST_USE.sub("", TEST_MODULE.sub("", text))


def imported(code):
    """The paths that the `use` items of a file import, each with its local name."""
    return [leaf for tree in USE.findall(code) for leaf in leaves(tree)]


def leaves(tree, prefix=()):
    """The paths of a tree of `use`, each with its local name."""
    head, brace, rest = tree.strip().partition("{")
    if brace:
        names = tuple(part for part in head.strip().split("::") if part)
        return [leaf for item in items(rest) for leaf in leaves(item, prefix + names)]
    path, _, local = head.partition(" as ")
    path = prefix + tuple(path.strip().split("::"))
    own = path[-2] if path[-1] == "self" and len(path) > 1 else path[-1]
    return [(path, local.strip() or own)]


def items(rest):
    """The items of a list in braces, given what follows the opening one."""
    found, depth, item = [], 1, ""
    for char in rest:
        depth += (char == "{") - (char == "}")
        if depth == 0:
            break
        if char == "," and depth == 1:
            found.append(item)
            item = ""
        else:
            item += char
    return [item for item in found + [item] if item.strip()]


def are_kin(module, other):
    """Whether one of two modules is the other, or stands below it."""
    return other[: len(module)] == module or module[: len(other)] == other


def circles(edges):
    """The sets of two or more modules that reach each other."""
    reached = {module: reach(module, edges) for module in edges}
    found, seen = [], set()
    for module in edges:
        if module not in seen:
            members = {other for other in reached[module] if module in reached[other]}
            seen |= members
            if len(members) > 1:
                found.append(members)
    return found


def reach(module, edges):
    """The modules that a module uses, directly or by way of others."""
    reached, waiting = set(), [module]
    while waiting:
        new = edges[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def shortest(members, edges):
    """The shortest way from a member of a circle back to it."""
    ways = (way for start in sorted(members) if (way := way_back(start, members, edges)))
    return [name(module) for module in min(ways, key=len)]


def way_back(start, members, edges):
    """The shortest way from one member back to it."""
    ways, seen = [[start]], {start}
    while ways:
        way = ways.pop(0)
        for other in sorted(edges[way[-1]] & members):
            if other == start:
                return way + [start]
            if other not in seen:
                seen.add(other)
                ways.append(way + [other])
    return None


if __name__ == "__main__":
    main()
