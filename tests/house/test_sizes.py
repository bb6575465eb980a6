"""Limits on the sizes of files, functions and parameter lists."""

from __future__ import annotations

import ast
from pathlib import Path

from house import tree

FILE_LINES = 500
FUNCTION_LINES = 70
POSITIONAL_PARAMETERS = 7


def functions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    return [
        (f"{module}:{node.lineno} {node.name}", node)
        for module, path in tree.modules().items()
        for node in ast.walk(tree.parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def lines_without_docstrings(path: Path) -> int:
    """The lines of a file. Docstrings of classes and functions do not count: see the reference."""
    return len(path.read_text(encoding="utf-8").splitlines()) - sum(
        (node.body[0].end_lineno or 0) - node.body[0].lineno
        for node in ast.walk(tree.parsed(path))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node)
    )


def test_no_file_is_longer_than_the_limit() -> None:
    files = [
        path for path in tree.tracked_files()
        if path.suffix == ".py" and lines_without_docstrings(path) > FILE_LINES
    ]
    assert [str(path.relative_to(tree.ROOT)) for path in files] == []


def test_no_function_is_longer_than_the_limit() -> None:
    # The docstring does not count.
    too_long = []
    for where, node in functions():
        first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
        lines = (node.end_lineno or 0) - first.lineno + 1
        if lines > FUNCTION_LINES:
            too_long.append(f"{where}: {lines} lines")
    assert too_long == []


def test_no_function_takes_more_positional_parameters_than_the_limit() -> None:
    too_many = [
        where
        for where, node in functions()
        if len([a for a in (*node.args.posonlyargs, *node.args.args)
                if a.arg not in {"self", "cls"}]) > POSITIONAL_PARAMETERS
    ]
    assert too_many == []
