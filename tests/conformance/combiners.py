"""Reducers, aggregators, mergers, joiners and initializers (README.md, section 4), and timestamp
extractors (section 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.cases import InvalidCase
from conformance.functions import (
    Boom,
    Maker,
    Spec,
    arguments,
    compare,
    field,
    fixed,
    long_argument,
    make_function,
    name_of,
    number,
    number0,
    predicate,
    same_json,
    scalar,
    split_literal,
    string_argument,
)
from conformance.values import equal, is_long, json_of, text, wrap_long

Reducer = Callable[[Any, Any], Any]
Aggregator = Callable[[Any, Any, Any], Any]
Merger = Callable[[Any, Any, Any], Any]
Joiner = Callable[[Any, Any, Any], Any]


def reducer(spec: Spec) -> Reducer:
    """(aggregate, new value)."""
    return make_function("reducer", _REDUCERS, spec)


def aggregator(spec: Spec) -> Aggregator:
    """(key, value, aggregate)."""
    return make_function("aggregator", _AGGREGATORS, spec)


def merger(spec: Spec) -> Merger:
    """(key, aggregate, aggregate)."""
    return make_function("merger", _MERGERS, spec)


def joiner(spec: Spec) -> Joiner:
    """(key, left, right)."""
    return make_function("joiner", _JOINERS, spec)


def initializer(spec: Spec) -> Callable[[], Any]:
    """No argument. Returns a new value for each call."""
    return make_function("initial value", _INITIAL, spec)


def _larger(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return a if compare(a, b) >= 0 else b


def _smaller(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return a if compare(a, b) <= 0 else b


def _sum(a: Any, b: Any) -> int:
    return wrap_long(number0(a) + number0(b))


def _difference(a: Any, b: Any) -> int:
    return wrap_long(number0(a) - number0(b))


def _without(aggregate: Any, value: Any, sep: str) -> str:
    parts = split_literal("" if aggregate is None else text(aggregate), sep)
    if text(value) in parts:
        parts.remove(text(value))
    return sep.join(parts)


# ---- reducers ----


def _concat_reducer(spec: dict[str, Any]) -> Reducer:
    sep = string_argument(spec, "sep")
    return lambda a, b: text(a) + sep + text(b)


def _null_if_reducer(spec: dict[str, Any]) -> Reducer:
    value, then = spec.get("v"), reducer(spec.get("then"))
    return lambda a, b: None if equal(b, value) else then(a, b)


def _remove_reducer(spec: dict[str, Any]) -> Reducer:
    sep = string_argument(spec, "sep", ",")
    return lambda a, b: _without(a, b, sep)


_REDUCERS: dict[str, Maker] = {
    "add": fixed(_sum),
    "sub": fixed(_difference),
    "add_null_if_zero": fixed(lambda a, b: _sum(a, b) or None),
    "max": fixed(_larger),
    "min": fixed(_smaller),
    "concat": _concat_reducer,
    "first": fixed(lambda a, b: a),
    "last": fixed(lambda a, b: b),
    "null": fixed(lambda a, b: None),
    "null_if": _null_if_reducer,
    "remove": _remove_reducer,
}

# ---- aggregators ----


def _count_if(spec: dict[str, Any]) -> Aggregator:
    test = predicate(spec.get("fn"))
    return lambda k, v, a: _sum(a, 1 if test(k, v) else 0)


def _sum_of(spec: dict[str, Any]) -> Aggregator:
    of = scalar(spec.get("fn"))
    return lambda k, v, a: _sum(a, of(k, v))


def _sub_of(spec: dict[str, Any]) -> Aggregator:
    of = scalar(spec.get("fn"))
    return lambda k, v, a: _difference(a, of(k, v))


def _is_empty(aggregate: Any) -> bool:
    return aggregate is None or aggregate == ""


def _concat_aggregator(spec: dict[str, Any]) -> Aggregator:
    sep = string_argument(spec, "sep")
    return lambda k, v, a: text(v) if _is_empty(a) else text(a) + sep + text(v)


def _remove_aggregator(spec: dict[str, Any]) -> Aggregator:
    sep = string_argument(spec, "sep", ",")
    return lambda k, v, a: _without(a, v, sep)


def _tag(spec: dict[str, Any]) -> Aggregator:
    tag = string_argument(spec, "tag")
    return lambda k, v, a: ("" if a is None else text(a)) + tag + text(v) + ";"


def _array(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _list_remove(k: Any, v: Any, a: Any) -> list[Any]:
    out = list(_array(a))
    node = json_of(v)
    for i, element in enumerate(out):
        if same_json(element, node):
            del out[i]
            break
    return out


def _stats(sign: int) -> Maker:
    def make(spec: dict[str, Any]) -> Aggregator:
        of = scalar(spec.get("fn"))
        return lambda k, v, a: {
            "count": wrap_long(number0(field(a, "count")) + sign),
            "sum": wrap_long(number0(field(a, "sum")) + sign * number0(of(k, v))),
        }

    return make


def _null_if_aggregator(spec: dict[str, Any]) -> Aggregator:
    value, then = spec.get("v"), aggregator(spec.get("then"))
    return lambda k, v, a: None if equal(v, value) else then(k, v, a)


def _throw_if_aggregator(spec: dict[str, Any]) -> Aggregator:
    value, then = spec.get("v"), aggregator(spec.get("then"))

    def aggregate(k: Any, v: Any, a: Any) -> Any:
        if equal(v, value):
            raise Boom
        return then(k, v, a)

    return aggregate


_AGGREGATORS: dict[str, Maker] = {
    "count": fixed(lambda k, v, a: _sum(a, 1)),
    "uncount": fixed(lambda k, v, a: _difference(a, 1)),
    "count_if": _count_if,
    "sum": fixed(lambda k, v, a: _sum(a, v)),
    "sub": fixed(lambda k, v, a: _difference(a, v)),
    "sum_of": _sum_of,
    "sub_of": _sub_of,
    "concat": _concat_aggregator,
    "remove": _remove_aggregator,
    "tag": _tag,
    "list_append": fixed(lambda k, v, a: [*_array(a), json_of(v)]),
    "list_remove": fixed(_list_remove),
    "stats": _stats(1),
    "unstats": _stats(-1),
    "last": fixed(lambda k, v, a: v),
    "first": fixed(lambda k, v, a: v if _is_empty(a) else a),
    "max": fixed(lambda k, v, a: _larger(a, v)),
    "min": fixed(lambda k, v, a: _smaller(a, v)),
    "keep": fixed(lambda k, v, a: a),
    "null_if": _null_if_aggregator,
    "throw_if": _throw_if_aggregator,
}


def _const_initial(spec: dict[str, Any]) -> Callable[[], Any]:
    value = spec.get("v")
    return lambda: value


_INITIAL: dict[str, Maker] = {
    "zero": fixed(lambda: 0),
    "empty_string": fixed(lambda: ""),
    "empty_list": fixed(list),
    "empty_object": fixed(dict),
    "null": fixed(lambda: None),
    "const": _const_initial,
}

# ---- mergers ----


def _concat_merger(spec: dict[str, Any]) -> Merger:
    sep = string_argument(spec, "sep")

    def merge(k: Any, a: Any, b: Any) -> str:
        x = "" if a is None else text(a)
        y = "" if b is None else text(b)
        return x + sep + y if x and y else x or y

    return merge


_MERGERS: dict[str, Maker] = {
    "add": fixed(lambda k, a, b: _sum(a, b)),
    "max": fixed(lambda k, a, b: _larger(a, b)),
    "min": fixed(lambda k, a, b: _smaller(a, b)),
    "concat": _concat_merger,
    "list_concat": fixed(lambda k, a, b: [*_array(a), *_array(b)]),
    "first": fixed(lambda k, a, b: a),
    "last": fixed(lambda k, a, b: b),
}

# ---- joiners ----


def _pair(spec: dict[str, Any]) -> Joiner:
    sep = string_argument(spec, "sep", "/")
    return lambda k, left, right: text(left) + sep + text(right)


def _pair_if_both(k: Any, left: Any, right: Any) -> str | None:
    return None if left is None or right is None else f"{text(left)}/{text(right)}"


def _json_set_joiner(spec: dict[str, Any]) -> Joiner:
    name = string_argument(spec, "name")
    return lambda k, left, right: (
        {**left, name: json_of(right)} if isinstance(left, dict) else None
    )


_JOINERS: dict[str, Maker] = {
    "pair": _pair,
    "pair_with_key": fixed(lambda k, left, right: f"{text(k)}:{text(left)}/{text(right)}"),
    "pair_if_both": fixed(_pair_if_both),
    "left": fixed(lambda k, left, right: left),
    "right": fixed(lambda k, left, right: right),
    "sum": fixed(lambda k, left, right: _sum(left, right)),
    "json_pair": fixed(
        lambda k, left, right: {"left": json_of(left), "right": json_of(right)}
    ),
    "json_set": _json_set_joiner,
    "null": fixed(lambda k, left, right: None),
}

# ---- timestamp extractors, functions of (value, partition time) ----


def own_timestamp(spec: Spec) -> Callable[[Any, int], int] | None:
    """The extractor of a spec, or None for the extractors that Kafka provides."""
    name, given = name_of(spec), arguments(spec)
    if name in ("fail_on_invalid", "log_and_skip", "use_partition_time"):
        return None
    if name == "after_at":
        return _after_at
    if name == "value":
        return lambda value, partition_time: value if is_long(value) else -1
    if name == "field":
        return _field_time(given)
    if name == "const":
        constant = long_argument(given, "n")
        return lambda value, partition_time: constant
    if name == "throw":
        return _throw
    raise InvalidCase(f"Unknown timestamp extractor {name!r}.")


def _after_at(value: Any, partition_time: int) -> int:
    _, at, digits = text(value).rpartition("@")
    found = number(digits) if at else None
    return -1 if found is None else found


def _field_time(spec: dict[str, Any]) -> Callable[[Any, int], int]:
    name, keeps_time = string_argument(spec, "name"), spec.get("else") == "partition_time"

    def extract(value: Any, partition_time: int) -> int:
        found = field(value, name)
        if is_long(found):
            return int(found)
        return partition_time if keeps_time else -1

    return extract


def _throw(value: Any, partition_time: int) -> int:
    raise Boom
