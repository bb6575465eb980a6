"""Banned phrasings, and the prose of the project in which they are searched.

CONTRIBUTING.md has the rules: plain technical English as in the documentation of Kafka and Spark.
Prose is Markdown text, docstrings, comments, the strings of `src`, and the names of tests, read as
sentences.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from house import tree


class Ban(NamedTuple):
    """A banned phrasing and its replacement."""

    pattern: re.Pattern[str]
    instead: str


class Text(NamedTuple):
    """A paragraph of prose and the line on which it starts."""

    line: int
    text: str


def _ban(pattern: str, instead: str) -> Ban:
    return Ban(re.compile(pattern, re.IGNORECASE), instead)


BANS = (
    _ban(r"\banswer(?:s|ed|ing)?\b", "return, respond; result, response"),
    _ban(
        r"\b(?:is|are|was|were|been) (?:not |no longer |still |already |all )?"
        r"there\b(?! (?:is|are|was|a|an|any|no)\b)",
        "exists, does not exist",
    ),
    _ban(r"\banew\b", "again"),
    _ban(r"\bfor ever\b", "forever, without limit"),
    _ban(r"\bdear(?:er|est)?\b", "expensive"),
    _ban(r"\b(?:put|puts|putting|set|kept) aside\b", "stage"),
    _ban(r"\b(?:told|said)\b", "reported, logged, named, given"),
    _ban(r"\bsome (?=\d)", "about"),
    _ban(r"\b(?:go|goes|going|went|gone) on\b", "continue"),
    _ban(r"\b(?:come|comes|coming|came) back\b", "return, restart, resume"),
    _ban(r"\bpeople\b", "users, callers"),
    _ban(r"\b(?:no|some|any|every)body\b", "name the process, the thread, the user"),
    _ban(r"\b(?:is|are|be) had\b", "get, create"),
    _ban(r"\b(?:is|are|was|were|been?) given up\b", "aborted"),
    _ban(r"\bagain and again\b", "repeatedly"),
    _ban(r"\baffairs?\b", "name the component that is responsible"),
    _ban(r"\b\d+ of 100\b", "percent, a percentile"),
    _ban(r"\b(?:let|lets|letting) go\b", "release"),
    _ban(r"\b(?:hear|hears|heard|hearing)\b", "receive"),
    _ban(r"\bwhom\b", "name the process, the thread, the user"),
    _ban(r"\bstrangers?\b", "name the component"),
    _ban(
        r"(?:^|[.;!?]\s)(?:who|whoever|what|whatever)\b(?![^.!?]*\?)",
        "start the sentence with a noun",
    ),
)

#: Words that must not be part of a name.
NAMES = re.compile(
    r"(?:^|_)(?:told|said|answers|answered|anew|aside|strangers?|who|whom|nobody)(?=_|$)"
)

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_NOT_PROSE = re.compile(r"noqa|type: ignore|pragma")
_SQL = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|FROM)\b")


def files() -> list[Path]:
    """The files with prose, without the two that quote banned phrasings."""
    return [
        path for path in tree.tracked_files()
        if path.suffix in {".py", ".pyi", ".md", ".c", ".h"}
        and path.name not in {"language.py", "test_language.py"}
    ]


def hits(path: Path) -> list[str]:
    """The banned phrasings of a file: line, words and replacement."""
    name = path.relative_to(tree.ROOT)
    source = path.read_text(encoding="utf-8")
    found = [
        f"{name}:{text.line}: {match[0].strip()!r}: {ban.instead}"
        for text in paragraphs(source, path)
        for ban in BANS
        for match in ban.pattern.finditer(_CODE.sub("``", text.text))
    ]
    if path.suffix in {".py", ".pyi"}:
        found += [f"{name}:{line}: the name {word!r}" for line, word in _banned_names(source)]
    return found


def paragraphs(source: str, path: Path) -> Iterator[Text]:
    """The paragraphs of a file, each joined to one line."""
    if path.suffix in {".py", ".pyi"}:
        yield from _of_python(source, with_strings="src" in path.parts)
    elif path.suffix == ".md":
        yield from _split(1, _FENCE.sub(lambda code: "\n" * code[0].count("\n"), source))
    else:
        for comment in _C_COMMENT.finditer(source):
            text = re.sub(r"^[ /*]+", "", comment[0], flags=re.MULTILINE)
            yield from _split(source.count("\n", 0, comment.start()) + 1, text)


def _split(first: int, text: str) -> Iterator[Text]:
    """Split text into paragraphs. Headings, list items and table rows are paragraphs, too."""
    block: list[str] = []
    start = first
    for number, line in enumerate([*text.split("\n"), ""], first):
        begins = re.match(r"\s*(?:[-*|#>]|\d+\.)\s*", line)
        if block and (begins or not line.strip()):
            yield Text(start, " ".join(block))
            block = []
        if line.strip():
            start = start if block else number
            block.append(line[begins.end():].strip() if begins else line.strip())


def _of_python(source: str, *, with_strings: bool) -> Iterator[Text]:
    module = ast.parse(source)
    docstrings = {
        id(node.body[0].value): node.body[0].value
        for node in ast.walk(module)
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None
        and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield Text(node.lineno, node.name.removeprefix("test_").replace("_", " "))
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        is_message = with_strings and " " in node.value.strip() and not _SQL.match(node.value)
        if id(node) in docstrings or is_message:
            yield from _split(node.lineno, node.value)
    yield from _comments(source)


def _comments(source: str) -> Iterator[Text]:
    """Comments. Consecutive comment lines are joined."""
    block: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or _NOT_PROSE.search(token.string):
            continue
        line, alone = token.start[0], not token.line[:token.start[1]].strip()
        if block and not (alone and line == last + 1):
            yield from _split(start, "\n".join(block))
            block = []
        start = start if block else line
        block.append(token.string.lstrip("#: "))
        last = line
    yield from _split(start, "\n".join(block))


def _banned_names(source: str) -> Iterator[tuple[int, str]]:
    seen = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and NAMES.search(token.string) and token.string not in seen:
            seen.add(token.string)
            yield token.start[0], token.string
