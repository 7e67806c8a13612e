#!/usr/bin/env python3
"""What a reader of the sources of the library and the tool stumbles over, as figures with bounds. From the project's root:

    .ci/check_house.py                fails if a figure has left its bound, and prints the places that make it up
    .ci/check_house.py --list FIGURE  prints the places of one figure, also within its bound
    .ci/check_house.py --folders      prints the figures of each folder, without bounds

Tests, simulations and test tools are left out. A bound is what was last reached, and moves in one direction: towards the wanted value
beside it. A figure is a sign: wrapping a tuple in a struct named `Args` or padding a comment lowers it and helps nobody.
"""
import bisect
import collections
import os
import re
import sys

# figure: (bound, wanted, meaning). Of `comments` and `docs` the bound is the least value, of all others the largest.
BOUNDS = {
    "tuples": (3, 15, "parameters whose pattern is a tuple: name the type, or make two parameters"),
    "impls": (0, 1, "types with inherent impls in three or more files: several types, or one file"),
    "subjectless": (0.1, 0.5, "% of the docs without a subject: `The endpoint's cluster.`, not `That of its channel.`"),
    "it": (0, 20, "closures whose parameter is `it`: name the thing"),
    "ids": (0, 0, "rule ids in the docs of public items: they belong in `//` beside the code"),
    "sentinels": (1, 0, "constants of `usize::MAX`: a variant of an enum"),
    "comments": (2.0, 2.0, "lines of comments in 100 lines of code"),
    "docs": (0.22, 0.22, "lines of docs for each line of code"),
    "words": (0, 0, "words that have been replaced, see WORDS"),
}
ROOTS = ["src", "crates/xdskit-cli/src"]
TIGHTEN = 0.1  # a bound that could come this much closer to the figure, relative to it, is worth a hint

# Words that are gone, from identifiers, comments and prose: a pattern, where it must not come back (a folder of sources, or `docs` with the
# README), and the word that has replaced it.
WORDS = [
    (r"\bnews\b", "src", "an update"),
    (r"\bnews\b", "docs", "an update"),
    (r"\b(?:server|client)s? hears?\b", "src", "receives"),
    (r"\bby wear\b", "docs", "soak tests"),
    (r"\basks? \w+ for its way\b", "docs", "routes each request"),
    (r"\bmakes? before it breaks\b", "docs", "make-before-break"),
    (r"\bWorth an alert\b", "docs", "recommended alerts"),
    (r"\bnothing usable came\b", "src", "poll failed"),
    (r"\b(?:Over|Guards|Pump|Published|Place)\b", "src/channel", "CallEnd, CallGuards, RequestUpload, PickerCell, QueuedCall"),
    (r"\b(?:Member|Handover|Retiring|OverrideHosts|Draws)\b", "src/balance", "ClusterEndpoint, ReleasedConnections, DrainingPolicy, SessionEndpoints, CallAttributes"),
    (r"\bis it frozen\b", "src", "the server accepted the stream but has sent no response"),
]
SUBJECTLESS = re.compile(r"(?:That|Those|The same|As before|It|They|Both|With|If|By|Until|None|Nothing|Another|Others?)\b")
# As in check_rule_ids.sh. A proposal alone, such as A27, is none: users know it.
RULE_ID = re.compile(r"(?<![\w.\/#-])(?:A\d+-\d+|(?:CH|LR|SV)\d+\.\d+|B\d\.\d+|(?!A\d|V[23]|RE2|[UI](?:8|16|32|64)|F(?:32|64)|H2|TP\d)[A-Z]{1,2}\d{1,2})(?![\w\/-]|\.\d)")
TEST_FOLDERS = {"tests", "simulation", "fuzzing", "testing"}
TEST_FILES = {"tests.rs", "test.rs", "fixture.rs", "samples.rs", "simulation.rs", "fuzzing.rs", "test_log.rs"}
# Text and characters, which are blanked, and comments, which are kept apart. A lifetime has no second quotation mark in its place.
LITERAL = re.compile(r"""//[^\n]*|/\*.*?\*/|\bb?r(\#*)".*?"\1|"(?:\\.|[^"\\])*"|'(?:\\[^']+|[^'\\\n])'""", re.S)
OPENING, CLOSING = "([{", ")]}"


class File:
    """A source file: its lines, and its code without text, comments and test modules."""

    def __init__(self, path):
        self.path = path
        with open(path, encoding="utf-8") as file:
            self.text = file.read()
        self.code = without_tests(LITERAL.sub(lambda found: blank(found.group()), self.text))
        self.lines = self.text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)

    def place(self, offset):
        return "%s:%d" % (self.path, bisect.bisect_right(self.starts, offset))


class Figures:
    """The places of each figure, and the lines of code, comments and docs."""

    def __init__(self):
        self.places = {figure: [] for figure in BOUNDS}
        self.impls = collections.defaultdict(set)
        self.code = self.comments = self.docs = self.doc_comments = 0

    def add(self, file):
        self.tuples(file)
        self.lines_of(file)
        self.places["it"] += [file.place(found.start()) for found in re.finditer(r"\|&?it\|", file.code)]
        self.places["sentinels"] += [file.place(found.start()) for found in re.finditer(r"\bconst [^;]*\busize::MAX\b", file.code)]
        for header in re.findall(r"^impl\b([^{]*)\{", file.code, re.M):
            name = re.match(r"\s*(\w+)", without_generics(header))
            if name and not re.search(r"\sfor\s", without_generics(header)):
                self.impls[file.path.split("/")[1], name[1]].add(file.path)

    def tuples(self, file):
        for found in re.finditer(r"\bfn\s+\w+\s*", file.code):
            starts = parameters(file.code, skip_generics(file.code, found.end()))
            self.places["tuples"] += [file.place(at) for at in starts if file.code[at] == "("]

    def lines_of(self, file):
        lines, i = [line.strip() for line in file.lines], 0
        while i < len(lines):
            line, first = lines[i], i
            i += 1
            if line.startswith(("///", "//!")):
                while i < len(lines) and lines[i].startswith(line[:3]):
                    i += 1
                self.docs += i - first
                if line.startswith("///"):
                    self.doc_comment(file, first, i)
            elif line.startswith("//"):
                self.comments += 1
            elif line:
                self.code += 1

    def doc_comment(self, file, first, end):
        self.doc_comments += 1
        text = " ".join(line.strip()[3:].strip() for line in file.lines[first:end])
        place = "%s:%d: %s" % (file.path, first + 1, text[:80])
        if SUBJECTLESS.match(text):
            self.places["subjectless"].append(place)
        while end < len(file.lines) and file.lines[end].strip().startswith("#["):
            end += 1
        item = file.lines[end].strip() if end < len(file.lines) else ""
        found = RULE_ID.findall(re.sub(r"`[^`]*`", "", text))
        if found and re.match(r"pub (?!mod\b)", item):
            self.places["ids"].append("%s (%s)" % (place, ", ".join(found)))

    def values(self):
        """The values of the figures, once all files are added."""
        many = {key: files for key, files in self.impls.items() if len(files) >= 3}
        self.places["impls"] = ["%s in %s: %s" % (name, folder, " ".join(sorted(files))) for (folder, name), files in sorted(many.items())]
        values = {figure: len(places) for figure, places in self.places.items()}
        values["subjectless"] = round(100 * len(self.places["subjectless"]) / max(self.doc_comments, 1), 1)
        values["comments"] = round(100 * self.comments / max(self.code, 1), 2)
        values["docs"] = round(self.docs / max(self.code, 1), 3)
        return values


def main(arguments):
    if not os.path.isdir("src"):
        sys.exit("no src/ here")
    figures, folders = Figures(), collections.defaultdict(Figures)
    for path in (path for root in ROOTS for path in sources(root, ".rs")):
        if is_test(path):
            continue
        for group in (figures, folders[path.split("/")[1]]):
            group.add(File(path))
    values = figures.values()
    figures.places["words"] = replaced_words()
    values["words"] = len(figures.places["words"])
    if arguments[:1] == ["--list"] and arguments[1:] and arguments[1] in BOUNDS:
        print("\n".join(figures.places[arguments[1]]))
    elif arguments == ["--folders"]:
        print("%-18s %6s" % ("", "code"), *("%11s" % figure for figure in BOUNDS))
        for folder in sorted(folders):
            print("%-18s %6d" % (folder, folders[folder].code), *("%11s" % value for value in folders[folder].values().values()))
    elif arguments:
        sys.exit(__doc__)
    else:
        sys.exit(judge(figures, values))


def judge(figures, values):
    """Compares each figure with its bound. Returns the exit status."""
    status = 0
    for figure, (bound, wanted, meaning) in BOUNDS.items():
        value, least = values[figure], figure in ("comments", "docs")
        print("%-12s %7s, bound %5s, wanted %4s" % (figure, value, bound, wanted))
        if value < bound if least else value > bound:
            status = 1
            places = "\n".join("  " + place for place in figures.places[figure])
            print("%s: %s, beyond the bound of %s: %s\n%s" % (figure, value, bound, meaning, places), file=sys.stderr)
        elif abs(value - bound) > TIGHTEN * max(value, 1) and bound != wanted:
            print("  its bound can be tightened to %s" % (min(value, wanted) if least else max(value, wanted)))
    return status


def replaced_words():
    found, texts = [], {}
    code = [path for root in ROOTS for path in sources(root, ".rs")]
    documents = ["README.md", "CONTRIBUTING.md", *sources("docs", ".md")]
    for pattern, where, instead in WORDS:
        for path in documents if where == "docs" else code if where == "src" else sources(where, ".rs"):
            if path not in texts:
                with open(path, encoding="utf-8") as file:
                    texts[path] = file.read().split("\n")
            found += ["%s:%d: %s: write %s" % (path, number + 1, line.strip()[:80], instead)
                      for number, line in enumerate(texts[path]) if re.search(pattern, line)]
    return found


def sources(root, extension):
    for folder, folders, files in os.walk(root):
        folders.sort()
        yield from (os.path.join(folder, file) for file in sorted(files) if file.endswith(extension))


def is_test(path):
    *folders, name = path.split("/")
    return bool(TEST_FOLDERS.intersection(folders)) or name in TEST_FILES or name.endswith(("_test.rs", "_tests.rs"))


def without_tests(code):
    """The code with its modules for tests blanked."""
    for found in reversed(list(re.finditer(r"^[ ]*#\[cfg\(test\)\]\s*mod \w+ \{", code, re.M))):
        end = closing(code, found.end() - 1) + 1
        code = code[: found.start()] + blank(code[found.start() : end]) + code[end:]
    return code


def parameters(code, opening):
    """Where each parameter of the list begins that opens at `opening`."""
    end, at, start, depth = closing(code, opening), opening + 1, True, 0
    while at < end:
        if start and not code[at].isspace():
            yield at
            start = False
        if code[at] == "," and depth == 0:
            start = True
        depth += (code[at] in OPENING + "<") - (code[at] in CLOSING or code[at] == ">" and code[at - 1] not in "-=")
        at += 1


def closing(code, opening):
    depth = 0
    for at in range(opening, len(code)):
        depth += (code[at] in OPENING) - (code[at] in CLOSING)
        if depth == 0:
            return at
    return len(code) - 1


def skip_generics(code, at):
    if code[at : at + 1] != "<":
        return at
    depth = 0
    for end in range(at, len(code)):
        depth += (code[end] == "<") - (code[end] == ">" and code[end - 1] not in "-=")
        if depth == 0:
            return end + 1
    return len(code)


def without_generics(header):
    header, before = header.replace("->", "  "), None
    while before != header:
        before, header = header, re.sub(r"<[^<>]*>", "", header)
    return header


def blank(text):
    return re.sub(r"[^\n]", " ", text)


main(sys.argv[1:])
