"""Functions and classes of the user as bytes, for workers that could not import them.

`cloudpickle` does it, but for classes that msgspec knows. A `Struct` would come back without its
fields: they are made with the class, and cannot be given to it later. What msgspec keeps in a class
that it has made a decoder for (`__msgspec_cache__`) cannot be pickled at all. And msgspec looks up
annotations that are texts in the module of their class, which is not there where the class arrives.
A dataclass knows its fields by objects that must not be copied.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import sys
from types import ModuleType
from typing import Any, get_type_hints

import cloudpickle  # type: ignore[import-untyped]
import msgspec

_CACHE = "__msgspec_cache__"
_POST_INIT = "__post_init__"
#: What dataclasses compare by identity.
_SENTINELS = {
    id(getattr(dataclasses, name)): name
    for name in ("MISSING", "KW_ONLY", "_FIELD", "_FIELD_CLASSVAR", "_FIELD_INITVAR")
}
#: What a class gets when it is made; the rest is set afterwards.
_MADE_ANEW = frozenset((
    _CACHE, "__dict__", "__weakref__", "__module__", "__qualname__", "__annotations__",
    "__match_args__", "__rich_repr__",
))


def pickle_by_value(module: ModuleType) -> None:
    """The functions and classes of a module are sent to workers whole, as if they stood in
    `__main__`: for a file that was run by its path, which no worker could import by a name."""
    cloudpickle.register_pickle_by_value(module)


def dumps(thing: Any) -> bytes:
    """The thing as bytes, for `pickle.loads`."""
    file = io.BytesIO()
    _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(thing)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if type(obj).__module__ == "dataclasses" and id(obj) in _SENTINELS:
            return getattr, (dataclasses, _SENTINELS[id(obj)])
        if isinstance(obj, msgspec.Meta):
            return _make_meta, (_public(obj),)
        reduced = super().reducer_override(obj)
        if not isinstance(obj, type) or not isinstance(reduced, tuple) or len(reduced) < 3:
            return reduced
        if isinstance(obj, type(msgspec.Struct)):
            return _struct_reduced(obj)
        make, arguments, state, *rest = reduced
        if isinstance(state, tuple) and isinstance(state[0], dict):
            attributes = {name: each for name, each in state[0].items() if name != _CACHE}
            if "__annotations__" in attributes:
                attributes["__annotations__"] = _hints(obj)
            state = (attributes, *state[1:])
        return (make, arguments, state, *rest)


def _make_meta(settings: dict[str, Any]) -> msgspec.Meta:
    return msgspec.Meta(**settings)


def _public(thing: Any) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in dir(thing) if not name.startswith("_")}


def _hints(kind: type) -> dict[str, Any]:
    """The annotations of a class itself; what is a text in them is looked up, if it can be."""
    names = dict(vars(sys.modules.get(kind.__module__, object)))
    own = {**vars(kind), kind.__name__: kind}
    hints: dict[str, Any] = {}
    for name, hint in vars(kind).get("__annotations__", {}).items():
        alone = type(kind.__name__, (), {"__annotations__": {name: hint}})
        try:
            hints |= get_type_hints(alone, names, own, include_extras=True)
        except Exception:
            # It stands in a function, say; whoever needs it will tell.
            hints[name] = hint
    return hints


# ---- structs ---------------------------------------------------------------------------------


def _struct_reduced(kind: Any) -> tuple[Any, ...]:
    fields = {
        each.name: each for each in msgspec.structs.fields(kind)
        if each.name in vars(kind).get("__annotations__", {})
    }
    options = _public(kind.__struct_config__)
    # Fields that cannot be given by their places are those of a class that says so.
    options["kw_only"] = bool(fields) and not any(name in kind.__match_args__ for name in fields)
    names = {
        "__module__": kind.__module__, "__qualname__": kind.__qualname__,
        **{name: each for name, each in vars(kind).items() if name == "__orig_bases__"},
    }
    if _POST_INIT in vars(kind):
        names[_POST_INIT] = None
    arguments = (
        type(kind), kind.__name__, kind.__bases__, names,
        {name: _declared(each) for name, each in fields.items()}, options,
    )
    members = {*fields, *_MADE_ANEW}
    state = {
        name: each for name, each in vars(kind).items()
        if name not in members and not name.startswith("__struct_")
        and type(each).__name__ not in {"builtin_function_or_method", "wrapper_descriptor"}
    }
    return _make_struct, arguments, {**state, "__annotations__": _hints(kind)}, None, None, _set


def _declared(field: Any) -> dict[str, Any]:
    """What `msgspec.field` takes."""
    given = {}
    if field.default is not msgspec.NODEFAULT:
        given["default"] = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        given["default_factory"] = field.default_factory
    if field.encode_name != field.name:
        given["name"] = field.encode_name
    return given


def _make_struct(
    meta: Any, name: str, bases: tuple[type, ...], names: dict[str, Any],
    fields: dict[str, dict[str, Any]], options: dict[str, Any],
) -> Any:
    namespace = {**names, "__annotations__": dict.fromkeys(fields, Any)}
    namespace |= {each: msgspec.field(**given) for each, given in fields.items() if given}
    if _POST_INIT in names:
        namespace[_POST_INIT] = _later()
    return meta(name, bases, namespace, **options)


def _later() -> Any:
    """A function that calls another one, which is told later. A Struct keeps the one that it is
    made with, and that of the user may refer to the Struct."""

    def post_init(self: Any) -> None:
        post_init.real(self)  # type: ignore[attr-defined]

    return post_init


def _set(kind: Any, state: dict[str, Any]) -> None:
    if _POST_INIT in state:
        vars(kind)[_POST_INIT].real = state[_POST_INIT]
    for name, each in state.items():
        setattr(kind, name, each)
