"""The rows of docs/semantics.md, and the places in the project that refer to them."""

from __future__ import annotations

import ast
import io
import re
import tokenize

from house import tree

TABLE = tree.ROOT / "docs" / "semantics.md"

_ROW = re.compile(r"^\| ((?:[A-Z]|KIP-)\d+) \| (.*?) \|$", re.MULTILINE)
#: One id or a range of ids with one letter. A letter in the middle of a word is not an id.
_REFERENCE = r"(?<![\w-])({letter})(\d{{1,2}})(?:(?:-| to )\1(\d{{1,2}}))?(?![\w-])"
#: "(M3)", "(F9, J11)", "(A1-A7)": a reference whatever its letter is.
_PARENTHESES = re.compile(r"\(([A-Z]\d{1,2}(?:(?:, |-| to )[A-Z]\d{1,2})*)(?:, KIP-\d+)?\)")
_KIP = re.compile(r"\bKIP-\d+\b")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def rows() -> list[tuple[str, str]]:
    """(id, rule) of every row, in the order of the page."""
    return _ROW.findall(TABLE.read_text(encoding="utf-8"))


def letters() -> str:
    """The letters that ids start with, as a character class."""
    return f"[{''.join(sorted({name[0] for name, _ in rows() if '-' not in name}))}]"


def ids_in(text: str, letter: str) -> set[str]:
    """The ids that a text refers to; ranges are expanded."""
    found = set(_KIP.findall(text))
    parts = [(_REFERENCE.format(letter=letter), text)]
    parts += [(_REFERENCE.format(letter="[A-Z]"), inner) for inner in _PARENTHESES.findall(text)]
    for pattern, part in parts:
        for first, low, high in re.findall(pattern, part):
            found |= {f"{first}{n}" for n in range(int(low), int(high or low) + 1)}
    return found


def prose(source: str, suffix: str) -> str:
    """The part of a file that is written for readers: comments, docstrings, Markdown text."""
    if suffix == ".py":
        return _python_prose(source)
    if suffix in {".c", ".h", ".java"}:
        return "\n".join(_C_COMMENT.findall(source))
    return _CODE.sub("", source)


def references() -> dict[str, set[str]]:
    """The ids that each file of the project refers to, for the files that refer to any."""
    letter = letters()
    found = {}
    for path in tree.tracked_files():
        if path.suffix in {".py", ".c", ".h", ".java", ".md"}:
            text = prose(path.read_text(encoding="utf-8"), path.suffix)
            if ids := ids_in(text, letter):
                found[str(path.relative_to(tree.ROOT))] = ids
    return found


def _python_prose(source: str) -> str:
    docstrings = [
        ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse(source)) if isinstance(node, _DOCUMENTED)
    ]
    comments = [
        token.string for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and "noqa" not in token.string
    ]
    return "\n".join(docstrings + comments)
