"""Every exception class of penstock is raised somewhere, or is the base of one that is (E6)."""

from __future__ import annotations

import ast

from house import tree
from penstock import errors

CLASSES = {
    name: found for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, Exception)
}


def is_used(name: str) -> bool:
    """Whether a module other than errors.py uses the class, not only to catch it."""
    for module, path in tree.modules().items():
        if module == "penstock.errors":
            continue
        caught = {
            id(each) for node in ast.walk(tree.parsed(path))
            if isinstance(node, ast.ExceptHandler) and node.type is not None
            for each in ast.walk(node.type)
        }
        if any(
            isinstance(node, ast.Name) and node.id == name and id(node) not in caught
            for node in ast.walk(tree.parsed(path))
        ):
            return True
    return False


def test_no_exception_class_is_unused() -> None:
    bases = {base for found in CLASSES.values() for base in found.__mro__[1:]}
    unused = [
        name for name, found in CLASSES.items()
        if found not in bases and not is_used(name)
    ]
    assert unused == []
