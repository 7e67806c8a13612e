#!/usr/bin/env python3
"""What readers of the documents rely on. From the project's root:

    .ci/check_documents.py  fails if no check compiles a Rust block, or a link between documents leads nowhere

A block is compiled as a documentation test, if src/doc_examples.rs includes its document, or as an application of tests/trial.sh.
"""

import pathlib
import re
import subprocess
import sys

FENCE = re.compile(r"```(\S*)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
DOCUMENTS = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", *sorted(map(str, pathlib.Path("docs").rglob("*.md"))), *sorted(map(str, pathlib.Path("crates").glob("*/README.md"))),
             *sorted(map(str, pathlib.Path("tests/interop").glob("**/README.md")))]


def compiled():
    """The documents whose Rust blocks are compiled."""
    tested = re.findall(r'include_str!\("\.\./([^"]+\.md)"\)', pathlib.Path("src/doc_examples.rs").read_text())
    line = next(line for line in pathlib.Path("tests/trial.sh").read_text().splitlines() if line.startswith("documents="))
    tried = subprocess.run(["bash", "-c", line + '; printf "%s\\n" "${documents[@]}"'], check=True, capture_output=True, text=True)
    return {*tested, *tried.stdout.split()}


def lines(document):
    """The lines of a document with their numbers, and for each the language of its block; `None` outside of blocks."""
    language = None
    for number, line in enumerate(pathlib.Path(document).read_text().splitlines(), 1):
        fence = FENCE.match(line)
        if fence and language is None:
            language = fence[1]
            yield number, line, language
        elif fence:
            language = None
        else:
            yield number, line, language


def anchors(document):
    """The anchors of a document's headings, as GitHub makes them."""
    found = set()
    for _, line, language in lines(document):
        if language is None and line.startswith("#"):
            text = re.sub(r"[^\w\- ]", "", LINK.sub("]", line.lstrip("#")).strip().lower())
            found.add(text.replace(" ", "-"))
    return found


def problems_of(document, tested):
    for number, line, language in lines(document):
        if line.startswith("```rust"):
            if "ignore" in line:
                yield f"{document}:{number}: the block is not compiled"
            elif document not in tested:
                yield f"{document}:{number}: neither src/doc_examples.rs nor tests/trial.sh compiles the document"
        if language is None:
            yield from broken_links(document, number, line)


def broken_links(document, number, line):
    for link in LINK.findall(re.sub(r"`[^`]*`", "", line)):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        to = pathlib.Path(document).parent / path if path else pathlib.Path(document)
        if not to.exists():
            yield f"{document}:{number}: there is no {link}"
        elif anchor and to.suffix == ".md" and anchor not in anchors(to):
            yield f"{document}:{number}: there is no heading for {link}"


def main():
    tested = compiled()
    problems = [problem for document in DOCUMENTS for problem in problems_of(document, tested)]
    if problems:
        sys.exit("\n".join(problems))
    print(f"{len(DOCUMENTS)} documents, their Rust blocks are compiled, and their links lead somewhere")


main()
