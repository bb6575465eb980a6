"""Packs an application for the workers; if that cannot be done, says what stands in the way."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from penstock.engine.packaging.bundle import Bundle
from penstock.engine.packaging.pickling import dumps
from penstock.errors import TopologyException

#: How far a search goes into what functions hold.
_DEEPEST = 12


def pack(bundle: Bundle, *, whose: str = "Spark's workers") -> bytes:
    """The bundle as bytes; `whose` they will be is said when that fails."""
    try:
        return bundle.dump()
    except Exception as error:
        raise TopologyException(_told(bundle, error, whose)) from error


def _told(bundle: Bundle, error: Exception, whose: str) -> str:
    for what, part in _parts(bundle):
        if not _travels(part):
            return (
                f"{what} cannot be sent to {whose}. {_Search().told(part)} "
                "Make it where it is used: context.resource(name, factory) keeps one for a "
                "worker; or in the function itself, when it is first called."
            )
    return f"The application cannot be sent to {whose}: {error}"


def _parts(bundle: Bundle) -> Iterator[tuple[str, Any]]:
    for node in bundle.topology.nodes:
        yield f"The step '{node.name}'", node
    for name, store in bundle.topology.stores.items():
        yield f"The store '{name}'", store
    for name, kept in bundle.topology.global_stores.items():
        yield f"The global store '{name}'", kept
    for field in dataclasses.fields(bundle.config):
        yield f"The setting {field.name}", getattr(bundle.config, field.name)


def _travels(part: Any) -> bool:
    try:
        dumps(part)
    except Exception:
        return False
    return True


class _Search:
    """Goes from what does not travel to the part of it that is the reason."""

    def __init__(self) -> None:
        #: The innermost function on the way, and the name under which it holds what is next.
        self._function: FunctionType | None = None
        self._name = ""
        self._seen: set[int] = set()

    def told(self, part: Any) -> str:
        """What is in the way, in a sentence."""
        culprit = self._descend(part, 0)
        try:
            dumps(culprit)
            why = "it refers to itself too deeply"
        except Exception as error:
            why = str(error)
        kind = f"a {type(culprit).__module__}.{type(culprit).__qualname__}".replace("builtins.", "")
        if self._function is None:
            return f"It holds {kind}, which cannot be pickled ({why})."
        place = where(self._function)
        if culprit is self._function:
            return f"Its function {place} cannot be pickled ({why})."
        return f"Its function {place} uses '{self._name}', {kind}, which cannot be pickled ({why})."

    def _descend(self, part: Any, depth: int) -> Any:
        if depth < _DEEPEST and id(part) not in self._seen:
            self._seen.add(id(part))
            for name, child in _children(part):
                if not _travels(child):
                    if isinstance(part, FunctionType):
                        self._function, self._name = part, name
                    return self._descend(child, depth + 1)
        if isinstance(part, FunctionType):
            self._function = part
        return part


def where(function: FunctionType) -> str:
    """A function by its name, and where it is written."""
    code = function.__code__
    return f"{function.__qualname__} ({Path(code.co_filename).name}:{code.co_firstlineno})"


def _children(part: Any) -> Iterator[tuple[str, Any]]:
    """What a thing holds that would be pickled with it."""
    if isinstance(part, FunctionType):
        held = inspect.getclosurevars(part)
        yield from held.nonlocals.items()
        yield from held.globals.items()
        yield from ((part.__name__, each) for each in part.__defaults__ or ())
        yield from (part.__kwdefaults__ or {}).items()
    elif isinstance(part, MethodType):
        yield part.__name__, part.__func__
        yield "self", part.__self__
    elif isinstance(part, functools.partial):
        yield "func", part.func
        yield from ((str(n), each) for n, each in enumerate(part.args))
        yield from part.keywords.items()
    elif isinstance(part, dict):
        yield from ((str(key), each) for key, each in part.items())
    elif isinstance(part, list | tuple | set | frozenset):
        yield from ((str(n), each) for n, each in enumerate(part))
    else:
        yield from _attributes(part)


def _attributes(part: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(part, "__dict__", {}).items()
    for kind in type(part).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(part, name) and name not in {"__weakref__", "__dict__"}:
                yield name, getattr(part, name)
