"""Pickles functions and classes of the user for workers that cannot import them.

`cloudpickle` does that, except for classes that msgspec knows:

- A `Struct` would arrive without its fields, which cannot be added to an existing class.
- The cache of msgspec in a class (`__msgspec_cache__`) cannot be pickled.
- msgspec resolves string annotations in the module of their class, which does not exist where the
  class arrives.
- A dataclass compares its sentinels by identity, so they must not be copied.
"""

from __future__ import annotations

import dataclasses
import io
import os
import pickle
import sys
import sysconfig
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, get_type_hints

import cloudpickle  # type: ignore[import-untyped]
import msgspec

_CACHE = "__msgspec_cache__"
_POST_INIT = "__post_init__"
#: The objects that dataclasses compare by identity.
_SENTINELS = {
    id(getattr(dataclasses, name)): name
    for name in ("MISSING", "KW_ONLY", "_FIELD", "_FIELD_CLASSVAR", "_FIELD_INITVAR")
}
#: The directories of Python's own modules and of installed packages.
_INSTALLED = tuple(
    os.path.join(path, "") for name, path in sysconfig.get_paths().items()
    if name in {"stdlib", "platstdlib", "purelib", "platlib"}
)
#: Members that a new class gets by itself. The others are set afterwards.
_CREATED_MEMBERS = frozenset((
    _CACHE, "__dict__", "__weakref__", "__module__", "__qualname__", "__annotations__",
    "__match_args__", "__rich_repr__",
))


def pickle_by_value(module: ModuleType) -> None:
    """Pickle the functions and classes of a module by value, like those of `__main__`.

    For a file that was started by its path, which no worker can import by name.
    """
    cloudpickle.register_pickle_by_value(module)


@contextmanager
def pickled_by_value(files: Collection[str]) -> Iterator[None]:
    """Pickle the modules of these files by value during the block, as if they were run by path.

    Installed modules are not: workers import them.
    """
    known = cloudpickle.list_registry_pickle_by_value()
    modules = [
        module for name, module in list(sys.modules.items())
        if (file := getattr(module, "__file__", None)) in files and name == module.__name__
        and name not in known and name != "__main__" and not str(file).startswith(_INSTALLED)
    ]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def dumps(obj: Any) -> bytes:
    """Pickle an object for `pickle.loads`."""
    file = io.BytesIO()
    _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(obj)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if type(obj).__module__ == "dataclasses" and id(obj) in _SENTINELS:
            return getattr, (dataclasses, _SENTINELS[id(obj)])
        if isinstance(obj, msgspec.Meta):
            return _make_meta, (_public_attributes(obj),)
        reduced = super().reducer_override(obj)
        if not isinstance(obj, type) or not isinstance(reduced, tuple) or len(reduced) < 3:
            return reduced
        if isinstance(obj, type(msgspec.Struct)):
            return _reduce_struct(obj)
        make, arguments, state, *rest = reduced
        if isinstance(state, tuple) and isinstance(state[0], dict):
            attributes = {name: each for name, each in state[0].items() if name != _CACHE}
            if "__annotations__" in attributes:
                attributes["__annotations__"] = _resolved_annotations(obj)
            state = (attributes, *state[1:])
        return (make, arguments, state, *rest)


def _make_meta(settings: dict[str, Any]) -> msgspec.Meta:
    return msgspec.Meta(**settings)


def _public_attributes(obj: Any) -> dict[str, Any]:
    return {name: getattr(obj, name) for name in dir(obj) if not name.startswith("_")}


def _resolved_annotations(kind: type) -> dict[str, Any]:
    """Return the annotations of a class itself, with strings resolved where possible."""
    module_names = dict(vars(sys.modules.get(kind.__module__, object)))
    class_names = {**vars(kind), kind.__name__: kind}
    hints: dict[str, Any] = {}
    for name, hint in vars(kind).get("__annotations__", {}).items():
        alone = type(kind.__name__, (), {"__annotations__": {name: hint}})
        try:
            hints |= get_type_hints(alone, module_names, class_names, include_extras=True)
        except Exception:
            # For example a name that is local to a function. An error occurs only if it is used.
            hints[name] = hint
    return hints


# ---- structs ---------------------------------------------------------------------------------


def _reduce_struct(kind: Any) -> tuple[Any, ...]:
    fields = {
        each.name: each for each in msgspec.structs.fields(kind)
        if each.name in vars(kind).get("__annotations__", {})
    }
    options = _public_attributes(kind.__struct_config__)
    # The configuration does not contain kw_only, but such fields are not in __match_args__.
    options["kw_only"] = bool(fields) and not any(name in kind.__match_args__ for name in fields)
    names = {
        "__module__": kind.__module__, "__qualname__": kind.__qualname__,
        **{name: each for name, each in vars(kind).items() if name == "__orig_bases__"},
    }
    if _POST_INIT in vars(kind):
        names[_POST_INIT] = None
    arguments = (
        type(kind), kind.__name__, kind.__bases__, names,
        {name: _field_arguments(each) for name, each in fields.items()}, options,
    )
    members = {*fields, *_CREATED_MEMBERS}
    state = {
        name: each for name, each in vars(kind).items()
        if name not in members and not name.startswith("__struct_")
        and type(each).__name__ not in {"builtin_function_or_method", "wrapper_descriptor"}
    }
    state["__annotations__"] = _resolved_annotations(kind)
    return _make_struct, arguments, state, None, None, _set_members


def _field_arguments(field: Any) -> dict[str, Any]:
    """Return the arguments of `msgspec.field`."""
    arguments = {}
    if field.default is not msgspec.NODEFAULT:
        arguments["default"] = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        arguments["default_factory"] = field.default_factory
    if field.encode_name != field.name:
        arguments["name"] = field.encode_name
    return arguments


def _make_struct(
    meta: Any, name: str, bases: tuple[type, ...], names: dict[str, Any],
    fields: dict[str, dict[str, Any]], options: dict[str, Any],
) -> Any:
    namespace = {**names, "__annotations__": dict.fromkeys(fields, Any)}
    namespace |= {each: msgspec.field(**given) for each, given in fields.items() if given}
    if _POST_INIT in names:
        namespace[_POST_INIT] = _post_init_placeholder()
    return meta(name, bases, namespace, **options)


def _post_init_placeholder() -> Any:
    """Return a function that calls another one, which is set later.

    A Struct keeps the `__post_init__` with which it is created, and the user's function may refer
    to the Struct.
    """

    def post_init(self: Any) -> None:
        post_init.real(self)  # type: ignore[attr-defined]

    return post_init


def _set_members(kind: Any, state: dict[str, Any]) -> None:
    if _POST_INIT in state:
        vars(kind)[_POST_INIT].real = state[_POST_INIT]
    for name, each in state.items():
        setattr(kind, name, each)
