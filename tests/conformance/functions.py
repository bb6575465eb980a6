"""The named functions of the cases (README.md, section 4).

Each table maps a name to a maker, which takes the spec (a name, or an object with arguments) and
returns the function. Makers validate the spec, so an unknown word fails before the case runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from conformance.cases import InvalidCase
from conformance.values import (
    canonical,
    characters,
    code_units,
    equal,
    is_long,
    json_of,
    length,
    text,
    wrap_long,
)
from penstock import Windowed

Spec = Any
Scalar = Callable[[Any, Any], Any]
Predicate = Callable[[Any, Any], bool]
ListFunction = Callable[[Any, Any], "list[Any] | None"]
Maker = Callable[[dict[str, Any]], Callable[..., Any]]

_INTEGER = re.compile(r"-?[0-9]{1,18}")


class Boom(RuntimeError):
    """Raised by the functions that fail on purpose."""

    def __init__(self) -> None:
        super().__init__("boom")


def name_of(spec: Spec) -> str:
    """The name in a spec."""
    if isinstance(spec, str):
        return spec
    if isinstance(spec, dict) and "f" in spec:
        return str(spec["f"])
    raise InvalidCase(f"Not a function: {spec!r}.")


def arguments(spec: Spec) -> dict[str, Any]:
    """The arguments in a spec; empty for a bare name."""
    return spec if isinstance(spec, dict) else {}


def number(value: Any) -> int | None:
    """The value as a long, parsed if it is a string. None if it is not a number."""
    if type(value) is int:
        return value
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    return None


def number0(value: Any) -> int:
    """Like `number`, with 0 in place of None."""
    return number(value) or 0


def field(value: Any, name: str) -> Any:
    """A field of a JSON object, or None if the value has no such field."""
    return value.get(name) if isinstance(value, dict) else None


def scalar(spec: Spec) -> Scalar:
    """(key, value) to a value."""
    return make_function("scalar function", _SCALARS, spec)


def predicate(spec: Spec) -> Predicate:
    """(key, value) to true or false."""
    return make_function("predicate", _PREDICATES, spec)


def list_function(spec: Spec) -> ListFunction:
    """(key, value) to a list or None."""
    return make_function("list function", _LISTS, spec)


def make_function(kind: str, makers: dict[str, Maker], spec: Spec) -> Callable[..., Any]:
    """The function that a spec names, from a table of makers."""
    if spec is None:
        raise InvalidCase(f"A {kind} is missing.")
    maker = makers.get(name_of(spec))
    if maker is None:
        raise InvalidCase(f"Unknown {kind} {name_of(spec)!r}. Known: {', '.join(sorted(makers))}.")
    return maker(arguments(spec))


def fixed(function: Callable[..., Any]) -> Maker:
    """The maker of a function that has no arguments."""
    return lambda spec: function


def string_argument(spec: dict[str, Any], name: str, default: str = "") -> str:
    """An argument as text."""
    value = spec.get(name)
    return default if value is None else text(value)


def long_argument(spec: dict[str, Any], name: str, default: int = 0) -> int:
    """An argument as a long."""
    return int(spec.get(name, default))


def compare(a: Any, b: Any) -> int:
    """Compare longs as numbers, other values by the UTF-16 code units of their text."""
    if is_long(a) and is_long(b):
        return int(a > b) - int(a < b)
    x, y = code_units(text(a)), code_units(text(b))
    return (x > y) - (x < y)


# ---- scalars ----


def _of_text(function: Callable[[str], Any]) -> Maker:
    return fixed(lambda k, v: None if v is None else function(text(v)))


def _of_long(function: Callable[[int, int], int]) -> Maker:
    def make(spec: dict[str, Any]) -> Scalar:
        n = long_argument(spec, "n")
        return lambda k, v: wrap_long(function(v, n)) if is_long(v) else None

    return make


def _append(spec: dict[str, Any]) -> Scalar:
    s = string_argument(spec, "s")
    return lambda k, v: None if v is None else text(v) + s


def _prepend(spec: dict[str, Any]) -> Scalar:
    s = string_argument(spec, "s")
    return lambda k, v: None if v is None else s + text(v)


def _concat_key(spec: dict[str, Any]) -> Scalar:
    sep = string_argument(spec, "sep", ":")
    return lambda k, v: text(k) + sep + text(v)


def _const(spec: dict[str, Any]) -> Scalar:
    value = spec.get("v")
    return lambda k, v: value


def _json_field(spec: dict[str, Any]) -> Scalar:
    name = string_argument(spec, "name")
    return lambda k, v: field(v, name)


def _json_set(spec: dict[str, Any]) -> Scalar:
    name = string_argument(spec, "name")
    inner = scalar(spec["fn"]) if "fn" in spec else None
    constant = spec.get("v")

    def set_field(k: Any, v: Any) -> Any:
        if not isinstance(v, dict):
            return None
        return {**v, name: constant if inner is None else json_of(inner(k, v))}

    return set_field


def _json_wrap(spec: dict[str, Any]) -> Scalar:
    name = string_argument(spec, "name")
    return lambda k, v: None if v is None else {name: json_of(v)}


def _split_part(spec: dict[str, Any]) -> Scalar:
    sep, i = string_argument(spec, "sep"), long_argument(spec, "i")

    def part(k: Any, v: Any) -> Any:
        if v is None:
            return None
        parts = split_literal(text(v), sep)
        return parts[i] if i < len(parts) else None

    return part


def split_literal(string: str, sep: str) -> list[str]:
    """Split at a separator. An empty separator splits into characters and an empty last part."""
    return string.split(sep) if sep else [*characters(string), ""] if string else [""]


def _to_null_if(spec: dict[str, Any]) -> Scalar:
    value = spec.get("v")
    return lambda k, v: None if equal(v, value) else v


def _null_to(spec: dict[str, Any]) -> Scalar:
    value = spec.get("v")
    return lambda k, v: value if v is None else v


def _if(spec: dict[str, Any]) -> Scalar:
    test, yes, no = predicate(spec.get("test")), scalar(spec.get("then")), scalar(spec.get("else"))
    return lambda k, v: yes(k, v) if test(k, v) else no(k, v)


def _compose(spec: dict[str, Any]) -> Scalar:
    functions = [scalar(f) for f in spec.get("fns", ())]

    def composed(k: Any, v: Any) -> Any:
        for function in functions:
            v = function(k, v)
        return v

    return composed


def _on_key(spec: dict[str, Any]) -> Scalar:
    inner = scalar(spec.get("fn"))
    return lambda k, v: inner(k, k)


def _throw_if(spec: dict[str, Any]) -> Scalar:
    value = spec.get("v")

    def pass_or_fail(k: Any, v: Any) -> Any:
        if equal(v, value):
            raise Boom
        return v

    return pass_or_fail


_SCALARS: dict[str, Maker] = {
    "identity": fixed(lambda k, v: v),
    "key": fixed(lambda k, v: k),
    "key_text": fixed(lambda k, v: text(k)),
    "null": fixed(lambda k, v: None),
    "const": _const,
    "upper": _of_text(str.upper),
    "lower": _of_text(str.lower),
    "length": _of_text(length),
    "first_char": _of_text(lambda s: characters(s)[0] if s else ""),
    "append": _append,
    "prepend": _prepend,
    "concat_key": _concat_key,
    "to_string": _of_text(lambda s: s),
    "parse_int": fixed(lambda k, v: number(v)),
    "add": _of_long(lambda v, n: v + n),
    "mul": _of_long(lambda v, n: v * n),
    "mod": _of_long(lambda v, n: v % n),
    "json_field": _json_field,
    "json_set": _json_set,
    "json_wrap": _json_wrap,
    "split_part": _split_part,
    "to_null_if": _to_null_if,
    "null_to": _null_to,
    "if": _if,
    "compose": _compose,
    "on_key": _on_key,
    "window_key": fixed(lambda k, v: k.key if isinstance(k, Windowed) else None),
    "window_start": fixed(lambda k, v: k.window.start if isinstance(k, Windowed) else None),
    "window_end": fixed(lambda k, v: k.window.end if isinstance(k, Windowed) else None),
    "throw_if": _throw_if,
}

# ---- predicates ----


def _text_test(test: Callable[[str, str], bool]) -> Maker:
    def make(spec: dict[str, Any]) -> Predicate:
        s = string_argument(spec, "s")
        return lambda k, v: v is not None and test(text(v), s)

    return make


def _number_test(test: Callable[[int, int], bool]) -> Maker:
    def make(spec: dict[str, Any]) -> Predicate:
        m = long_argument(spec, "n")

        def accept(k: Any, v: Any) -> bool:
            n = number(v)
            return n is not None and test(n, m)

        return accept

    return make


def _length_gt(spec: dict[str, Any]) -> Predicate:
    n = long_argument(spec, "n")
    return lambda k, v: v is not None and length(text(v)) > n


def _eq(spec: dict[str, Any]) -> Predicate:
    value = spec.get("v")
    return lambda k, v: equal(v, value)


def _ne(spec: dict[str, Any]) -> Predicate:
    value = spec.get("v")
    return lambda k, v: not equal(v, value)


def _key_eq(spec: dict[str, Any]) -> Predicate:
    value = spec.get("v")
    return lambda k, v: equal(k, value)


def _key_in(spec: dict[str, Any]) -> Predicate:
    values = list(spec.get("vs", ()))
    return lambda k, v: any(equal(k, value) for value in values)


def _json_eq(spec: dict[str, Any]) -> Predicate:
    name, value = string_argument(spec, "name"), spec.get("v")
    return lambda k, v: equal(field(v, name), value)


def _not(spec: dict[str, Any]) -> Predicate:
    inner = predicate(spec.get("fn"))
    return lambda k, v: not inner(k, v)


def _and(spec: dict[str, Any]) -> Predicate:
    tests = [predicate(f) for f in spec.get("fns", ())]
    return lambda k, v: all(test(k, v) for test in tests)


def _or(spec: dict[str, Any]) -> Predicate:
    tests = [predicate(f) for f in spec.get("fns", ())]
    return lambda k, v: any(test(k, v) for test in tests)


def _test(spec: dict[str, Any]) -> Predicate:
    of, accepts = scalar(spec.get("of")), predicate(spec.get("is"))
    return lambda k, v: accepts(k, of(k, v))


def _true_or_throw(spec: dict[str, Any]) -> Predicate:
    value = spec.get("v")

    def accept(k: Any, v: Any) -> bool:
        if equal(v, value):
            raise Boom
        return True

    return accept


def _even(k: Any, v: Any) -> bool:
    n = number(v)
    return n is not None and n % 2 == 0


_PREDICATES: dict[str, Maker] = {
    "true": fixed(lambda k, v: True),
    "false": fixed(lambda k, v: False),
    "is_null": fixed(lambda k, v: v is None),
    "not_null": fixed(lambda k, v: v is not None),
    "key_is_null": fixed(lambda k, v: k is None),
    "contains": _text_test(lambda t, s: s in t),
    "starts_with": _text_test(lambda t, s: t.startswith(s)),
    "length_gt": _length_gt,
    "eq": _eq,
    "ne": _ne,
    "gt": _number_test(lambda n, m: n > m),
    "ge": _number_test(lambda n, m: n >= m),
    "lt": _number_test(lambda n, m: n < m),
    "le": _number_test(lambda n, m: n <= m),
    "even": fixed(_even),
    "key_eq": _key_eq,
    "key_in": _key_in,
    "json_eq": _json_eq,
    "not": _not,
    "and": _and,
    "or": _or,
    "test": _test,
    "throw_if": _true_or_throw,
}

# ---- list functions ----


def _repeat(spec: dict[str, Any]) -> ListFunction:
    n = long_argument(spec, "n")
    return lambda k, v: [v] * n


def _each_of(spec: dict[str, Any]) -> ListFunction:
    functions = [scalar(f) for f in spec.get("fns", ())]
    return lambda k, v: [function(k, v) for function in functions]


def _json_elements(spec: dict[str, Any]) -> ListFunction:
    name = string_argument(spec, "name")

    def elements(k: Any, v: Any) -> list[Any]:
        array = field(v, name)
        return list(array) if isinstance(array, list) else []

    return elements


_LISTS: dict[str, Maker] = {
    "split_words": fixed(
        lambda k, v: [] if v is None else [word for word in text(v).split(" ") if word]
    ),
    "chars": fixed(lambda k, v: [] if v is None else characters(text(v))),
    "repeat": _repeat,
    "each_of": _each_of,
    "json_elements": _json_elements,
    "empty": fixed(lambda k, v: []),
    "null_list": fixed(lambda k, v: None),
}


def same_json(a: Any, b: Any) -> bool:
    """Equality of two JSON nodes, types included."""
    return canonical(a) == canonical(b)
