"""The knowledge of DSL steps about their keys and values.

Kafka Streams passes serdes on through few steps. Where it has none and the configuration has no
default, penstock uses what is known about the data: the serde that was given upstream while the
data stays the same, and the type that a function returns. A `Flow` is evaluated when the
configuration is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_origin

from penstock.dsl.functions import joiner_takes_key
from penstock.dsl.result_types import (
    Type,
    display_name,
    element_type,
    known_type,
    pair_types,
    result_type,
    type_name,
)
from penstock.processors.api import FixedKeyProcessor, Processor
from penstock.serdes.base import Serde, same_serde
from penstock.serdes.builtin import find_serde, with_sorted_keys
from penstock.topology.default_serdes import Data, DefaultSerdes, Flow, Which

#: Extracts a part of a result: an element, or the key of a pair.
Part = Callable[[Type], Type]


def whole(of: Type) -> Type:
    """The result itself."""
    return of


def pair_key(of: Type) -> Type:
    """The key of a (key, value) pair."""
    return pair_types(of)[0]


def pair_value(of: Type) -> Type:
    """The value of a (key, value) pair."""
    return pair_types(of)[1]


def element_key(of: Type) -> Type:
    """The keys of (key, value) pairs."""
    return pair_key(element_type(of))


def element_value(of: Type) -> Type:
    """The values of (key, value) pairs."""
    return pair_value(element_type(of))


def serde_flow(serde: Serde[Any]) -> Flow:
    """Return the flow of data with a serde that the user has given."""
    data = Data(serde, serde.python_type)
    return lambda defaults: data


def source_flow(which: Which, where: str) -> Flow:
    """Return the flow of a topic that is read without a serde: that of the default serde."""

    def flow(defaults: DefaultSerdes) -> Data:
        serde = defaults.find(which)
        if serde is None:
            return Data(reason=f"{where} has no {which} serde.")
        return Data(serde, serde.python_type)

    return flow


def unknown_flow(reason: str) -> Flow:
    """Return the flow of data about which nothing is known."""
    return lambda defaults: Data(reason=reason)


class _Argument:
    """Stands for an argument whose result is looked for: a function may return it unchanged."""

    def __init__(self, flow: Flow, is_key: bool) -> None:
        self.flow = flow
        self.is_key = is_key


def function_flow(
    function: Any,
    which: Which,
    what: str,
    *arguments: Flow,
    part: Part = whole,
    keys: int = 1,
) -> Flow:
    """Return the flow of the result of a function, or of a part of it.

    `arguments` are those that the function is called with; the first `keys` of them are keys.
    `what` describes the function in errors: "the mapper of step 'x'".
    """
    tokens = [_Argument(flow, number < keys) for number, flow in enumerate(arguments)]
    returned = part(result_type(function, *tokens))
    if isinstance(returned, _Argument):
        return _moved(returned, which)

    def flow(defaults: DefaultSerdes) -> Data:
        types = [data_type(argument(defaults)) for argument in arguments]
        found = part(result_type(function, *types))
        if found is None:
            return Data(reason=(
                f"The type of the result of {what}, {display_name(function)}, is unknown; a "
                "function with a return annotation has a known type."
            ))
        return Data(type=found, reason=f"The result of {what} is of type {type_name(found)}.")

    return flow


def joiner_flow(joiner: Any, step: str, keys: Flow, left: Flow, right: Flow) -> Flow:
    """Return the flow of the result of a joiner of (left, right) or (key, left, right)."""
    with_key = joiner_takes_key(joiner, step=step)
    arguments = (keys, left, right) if with_key else (left, right)
    what = f"the joiner of step '{step}'"
    return function_flow(joiner, "value", what, *arguments, keys=int(with_key))


def _moved(argument: _Argument, which: Which) -> Flow:
    """Return the flow of an argument that becomes a key or a value."""
    if which == "value" or argument.is_key:
        return argument.flow

    def flow(defaults: DefaultSerdes) -> Data:
        data = argument.flow(defaults)
        if data.serde is None:
            return data
        # Equal keys must have equal bytes, also if they are dicts.
        return Data(with_sorted_keys(data.serde), data.type, data.reason)

    return flow


def data_type(data: Data) -> Type:
    """Return the type of the data, if it is known."""
    return known_type(data.type) if data.type is not None else None


def merged_flow(left: Flow, right: Flow, which: Which, step: str) -> Flow:
    """Return the flow of the data of two streams together: known if both have the same serde."""

    def flow(defaults: DefaultSerdes) -> Data:
        one, other = left(defaults), right(defaults)
        serde, other_serde = _serde(one, which), _serde(other, which)
        if serde is None:
            return one
        if other_serde is None:
            return other
        if same_serde(serde, other_serde):
            return one
        return Data(reason=(
            f"The two sides of step '{step}' have different {which} serdes: "
            f"{serde.name} and {other_serde.name}."
        ))

    return flow


def joined_flow(left: Flow, right: Flow, which: Which, step: str) -> Flow:
    """Return the flow of the equal keys of a join: known if one side is, and both agree."""
    both = merged_flow(left, right, which, step)

    def flow(defaults: DefaultSerdes) -> Data:
        one, other = left(defaults), right(defaults)
        if _serde(one, which) is None:
            return other if _serde(other, which) is not None else one
        return one if _serde(other, which) is None else both(defaults)

    return flow


def windowed_flow(keys: Flow, wrap: Callable[[Serde[Any]], Serde[Any]]) -> Flow:
    """Return the flow of windowed keys; `wrap` makes a windowed serde of the serde of the key."""

    def flow(defaults: DefaultSerdes) -> Data:
        data = keys(defaults)
        serde = _serde(data, "key")
        if serde is None:
            return data
        windowed = wrap(serde)
        return Data(windowed, windowed.python_type)

    return flow


def aggregate_flow(
    initializer: Any, aggregators: tuple[Any, ...], keys: Flow, values: tuple[Flow, ...], step: str
) -> Flow:
    """Return the flow of an aggregate: the type of the initializer and of the aggregators' results.

    An initial int may become a float, as in 0 + 1.5; then the aggregate is a float.
    """

    def flow(defaults: DefaultSerdes) -> Data:
        first = result_type(initializer)
        first = None if first is type(None) else first
        found = [first]
        for aggregator, value in zip(aggregators, values, strict=True):
            arguments = data_type(keys(defaults)), data_type(value(defaults)), first
            found.append(result_type(aggregator, *arguments))
        types = list({repr(each): each for each in found if each is not None}.values())
        if len(types) == 1:
            return Data(type=types[0], reason=f"The aggregate is of type {type_name(types[0])}.")
        if types and all(each in (int, float) for each in types):
            return Data(type=float)
        if types:
            names = " and ".join(type_name(each) for each in types)
            return Data(reason=f"The functions of step '{step}' return different types: {names}.")
        return Data(reason=(
            f"The type of the result of the initializer of step '{step}', "
            f"{display_name(initializer)}, is unknown; a function with a return annotation has a "
            "known type."
        ))

    return flow


def processor_flow(supplier: Any, which: Which, step: str) -> Flow:
    """Return the flow of the records that a processor forwards, from its type arguments."""
    found = _forwarded_type(supplier, which)
    if found is None:
        return unknown_flow(
            f"The type of the {which}s that processor '{step}' forwards is unknown; "
            "Processor[KIn, VIn, KOut, VOut] declares it."
        )
    return lambda defaults: Data(
        type=found, reason=f"Processor '{step}' forwards {which}s of type {type_name(found)}."
    )


def _forwarded_type(supplier: Any, which: Which) -> Type:
    cls = supplier if isinstance(supplier, type) else result_type(supplier)
    for base in (Processor, FixedKeyProcessor):
        arguments = generic_arguments(cls, base)
        if arguments:
            return known_type(arguments[2 if which == "key" else -1])
    return None


def generic_arguments(cls: Any, base: type) -> tuple[Type, ...]:
    """Return the arguments with which a class inherits from a generic base class."""
    cls = get_origin(cls) or cls
    for each in getattr(cls, "__mro__", ()):
        for parent in getattr(each, "__orig_bases__", ()):
            if get_origin(parent) is base:
                return get_args(parent)
    return ()


def transformer_flow(supplier: Any, step: str) -> Flow:
    """Return the flow of the results of a `ValueTransformer`."""
    cls = supplier if isinstance(supplier, type) else result_type(supplier)
    transform = getattr(cls, "transform", None)
    found = None if transform is None else result_type(transform)
    if found is None or isinstance(found, TypeVar):
        return unknown_flow(
            f"The type of the result of the transformer of step '{step}' is unknown; a return "
            "annotation of its method `transform` declares it."
        )
    return lambda defaults: Data(
        type=found, reason=f"Step '{step}' returns values of type {type_name(found)}."
    )


def _serde(data: Data, which: Which) -> Serde[Any] | None:
    if data.serde is not None or data.type is None:
        return data.serde
    return find_serde(data.type, sort_keys=which == "key")
