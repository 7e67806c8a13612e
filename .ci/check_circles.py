#!/usr/bin/env python3
"""Finds circles of files: files of src/ that use each other, directly or by way of others.

A module and those below it may use each other, as one is made of the other. Tests and simulations are left out, and so are
paths that `use` does not name. Each circle is printed with one path through it. From the project's root: .ci/check_circles.py
"""

import pathlib
import re
import sys

SOURCE = pathlib.Path("src")
LEFT_OUT = re.compile(r"(^|/)(tests|simulation|testing)(/|\.rs$)")
USE = re.compile(r"^[ \t]*(?:pub(?:\([^)]*\))?[ \t]+)?use[ \t]+([^;]+);", re.M)
TEST_MODULE = re.compile(r"^#\[cfg\(test\)\]\nmod tests \{.*", re.M | re.S)


def module_of(path):
    """The module of a file, as a tuple of names."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib") else parts


def leaves(tree, prefix=()):
    """The paths of a tree of `use`."""
    tree = tree.strip()
    if "{" in tree and tree.find("{") < (tree.find(",") if "," in tree else len(tree)):
        head, _, rest = tree.partition("{")
        names = tuple(name for name in head.strip().rstrip(":").split("::") if name)
        depth, item = 1, ""
        for char in rest:
            depth += (char == "{") - (char == "}")
            if depth == 0:
                break
            if char == "," and depth == 1:
                yield from leaves(item, prefix + names)
                item = ""
            else:
                item += char
        if item.strip():
            yield from leaves(item, prefix + names)
    elif tree:
        yield prefix + tuple(tree.split(" as ")[0].strip().split("::"))


def resolved(path, module):
    """The absolute path of a `use` in a module; None for another crate."""
    path = list(path)
    if path[0] == "crate":
        return tuple(path[1:])
    here = list(module)
    if path[0] not in ("self", "super"):
        return None
    if path[0] == "self":
        path.pop(0)
    while path and path[0] == "super":
        path.pop(0)
        here = here[:-1]
    return tuple(here + path)


def graph():
    """The modules that have files, with those that each of them uses."""
    files = {module_of(path): path for path in SOURCE.rglob("*.rs") if not LEFT_OUT.search(str(path))}
    edges = {}
    for module, path in files.items():
        text = TEST_MODULE.sub("", path.read_text())
        text = re.sub(r"//[^\n]*", "", text)
        used = set()
        for tree in USE.findall(text):
            for leaf in leaves(tree):
                target = resolved(leaf, module)
                while target and target not in files:
                    target = target[:-1]
                if target:
                    used.add(target)
        is_kin = lambda other: other[: len(module)] == module or module[: len(other)] == other
        edges[module] = {other for other in used if not is_kin(other)}
    return files, edges


def circles(edges):
    """The strongly connected sets of modules with more than one member (Tarjan's algorithm, without recursion)."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(sorted(edges[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(edges[other]))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    members = set()
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        members.add(member)
                        if member == node:
                            break
                    if len(members) > 1:
                        found.append(members)
    return found


def shortest(members, edges):
    """The shortest way from a member back to it."""
    best = None
    for start in sorted(members):
        ways, seen = [[start]], {start}
        while ways:
            way = ways.pop(0)
            nexts = sorted(edges[way[-1]] & members)
            if start in nexts:
                if best is None or len(way) < len(best):
                    best = way
                break
            for other in nexts:
                if other not in seen:
                    seen.add(other)
                    ways.append(way + [other])
    return best + best[:1]


def main():
    files, edges = graph()
    found = circles(edges)
    for members in sorted(found, key=len):
        way = " -> ".join(str(files[module]) for module in shortest(members, edges))
        print(f"{len(members)} files use each other, such as {way}")
    if found:
        sys.exit(f"{len(found)} circles of files")


if __name__ == "__main__":
    main()
