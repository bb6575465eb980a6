"""Encodes an application for its workers. If that fails, finds the object that is the reason."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from penstock.config import StreamsConfig
from penstock.engine.packaging.pickling import dumps, pickled_by_value
from penstock.errors import TopologyException
from penstock.topology.topology import Topology

if TYPE_CHECKING:
    # The test driver uses this module without the engine.
    from penstock.engine.packaging.bundle import Bundle

_AS_MODULE = (
    " This applies to `penstock run FILE`. If workers import the application, as with "
    "`penstock run MODULE`, use TopologyTestDriver(..., check_pickling='module')."
)
#: The maximum depth of the search.
_MAX_DEPTH = 12


def pack_bundle(bundle: Bundle) -> bytes:
    """Encode a bundle."""
    try:
        return bundle.dump()
    except Exception as error:
        raise _not_packable(bundle.topology, bundle.config, error) from error


def check_packable(topology: Topology, config: StreamsConfig) -> None:
    """Raise the error of `pack_bundle` if the application cannot be sent to workers."""
    try:
        dumps((topology, config))
    except Exception as error:
        raise _not_packable(topology, config, error) from error


def check_packable_as_file(topology: Topology, config: StreamsConfig) -> None:
    """Raise the error of `check_packable` for an application that is started by its path.

    The file that is run is sent by value, with the globals that its functions use. A test imports
    the file, so it would be sent by name.
    """
    with pickled_by_value(topology.source_files):
        try:
            dumps((topology, config))
        except Exception as error:
            raise _not_packable(topology, config, error, _AS_MODULE) from error


def _not_packable(
    topology: Topology, config: StreamsConfig, error: Exception, advice: str = ""
) -> TopologyException:
    for name, part in _parts(topology, config):
        if not _can_pickle(part):
            return TopologyException(
                f"{name} cannot be sent to Spark's workers. {_Search().explain(part)} "
                "Create the object where it is used: context.resource(name, factory) keeps one "
                f"per worker. Or create it in the function, on its first call.{advice}"
            )
    return TopologyException(f"The application cannot be sent to Spark's workers: {error}")


def _parts(topology: Topology, config: StreamsConfig) -> Iterator[tuple[str, Any]]:
    for node in topology.nodes:
        yield f"The step '{node.name}'", node
    for name, store in topology.stores.items():
        yield f"The store '{name}'", store
    for name, global_store in topology.global_stores.items():
        yield f"The global store '{name}'", global_store
    for field in dataclasses.fields(config):
        yield f"The setting {field.name}", getattr(config, field.name)


def _can_pickle(part: Any) -> bool:
    try:
        dumps(part)
    except Exception:
        return False
    return True


class _Search:
    """Descends from an object that cannot be pickled to the innermost one."""

    def __init__(self) -> None:
        #: The innermost function on the path, and the name of the next object in it.
        self._function: FunctionType | None = None
        self._name = ""
        self._seen: set[int] = set()

    def explain(self, part: Any) -> str:
        """Name the innermost object in a sentence."""
        culprit = self._descend(part, 0)
        try:
            dumps(culprit)
            reason = "it refers to itself too deeply"
        except Exception as error:
            reason = str(error)
        kind = f"a {type(culprit).__module__}.{type(culprit).__qualname__}".replace("builtins.", "")
        if self._function is None:
            return f"It holds {kind}, which cannot be pickled ({reason})."
        location = _location(self._function)
        if culprit is self._function:
            return f"Its function {location} cannot be pickled ({reason})."
        return (
            f"Its function {location} uses '{self._name}', {kind}, which cannot be pickled "
            f"({reason})."
        )

    def _descend(self, part: Any, depth: int) -> Any:
        if depth < _MAX_DEPTH and id(part) not in self._seen:
            self._seen.add(id(part))
            for name, child in _children(part):
                if not _can_pickle(child):
                    if isinstance(part, FunctionType):
                        self._function, self._name = part, name
                    return self._descend(child, depth + 1)
        if isinstance(part, FunctionType):
            self._function = part
        return part


def _location(function: FunctionType) -> str:
    code = function.__code__
    return f"{function.__qualname__} ({Path(code.co_filename).name}:{code.co_firstlineno})"


def _children(part: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects that would be pickled with an object, and their names."""
    if isinstance(part, FunctionType):
        used = inspect.getclosurevars(part)
        yield from used.nonlocals.items()
        yield from used.globals.items()
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
