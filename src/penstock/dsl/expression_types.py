"""The result type of a short function without annotations, from the types of its arguments.

The instructions of a function without branches are followed with types instead of values:
`lambda order: order.customer` on an `Order` has the type of that field. An instruction that is not
listed here, every branch and every loop make the result unknown. So the result is either right or
unknown, also on a Python version with other instructions.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Callable
from dataclasses import dataclass
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType, GenericAlias, ModuleType
from typing import Any, get_args, get_origin

from penstock.dsl.result_types import (
    Type,
    attribute_type,
    known_type,
    method_result,
    result_type,
)
from penstock.serdes.types import plain_type

_SPECIAL = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_VARARGS | CO_VARKEYWORDS
_SCALARS = (str, int, float, bool, bytes, type(None))
_NUMBERS = (int, float)


@dataclass(frozen=True)
class _Function:
    """A function on the stack; `call` returns the type of its result."""

    call: Callable[..., Type]
    #: The function itself, or a module.
    target: Any = None


class _UnknownError(Exception):
    """The result cannot be determined."""


def expression_type(function: FunctionType, arguments: tuple[Type, ...]) -> Type:
    """Return the type of the function's result; None if it is unknown."""
    code = function.__code__
    if code.co_flags & _SPECIAL or code.co_argcount < len(arguments):
        return None
    evaluation = _Evaluation(function, dict(zip(code.co_varnames, arguments, strict=False)))
    try:
        for instruction in dis.get_instructions(code):
            evaluation.run(instruction)
            if evaluation.result:
                return _plain(evaluation.result[0])
    except (_UnknownError, IndexError):
        pass
    return None


class _Evaluation:
    """The local variables and the stack of one function, as types."""

    def __init__(self, function: FunctionType, variables: dict[str, Type]) -> None:
        self.function = function
        self.variables: dict[str, Any] = variables
        self.stack: list[Any] = []
        self.keywords = False
        self.result: list[Any] = []

    def run(self, instruction: dis.Instruction) -> None:
        """Follow one instruction."""
        handler = _HANDLERS.get(instruction.opname)
        if handler is None:
            raise _UnknownError
        handler(self, instruction)

    def pop(self, count: int) -> list[Any]:
        """Remove the upper items of the stack and return them in order."""
        if count > len(self.stack):
            raise _UnknownError
        items = self.stack[len(self.stack) - count:]
        del self.stack[len(self.stack) - count:]
        return items


def _plain(item: Any) -> Type:
    return None if isinstance(item, _Function) else item


def _skip(run: _Evaluation, instruction: dis.Instruction) -> None:
    pass


def _load_variables(run: _Evaluation, instruction: dis.Instruction) -> None:
    names = instruction.argval
    for name in names if isinstance(names, tuple) else (names,):
        run.stack.append(run.variables.get(name))


def _store_variable(run: _Evaluation, instruction: dis.Instruction) -> None:
    run.variables[instruction.argval] = run.pop(1)[0]


def _load_constant(run: _Evaluation, instruction: dis.Instruction) -> None:
    run.stack.append(_value_type(instruction.argval))


def _return_constant(run: _Evaluation, instruction: dis.Instruction) -> None:
    run.result = [_value_type(instruction.argval)]


def _return(run: _Evaluation, instruction: dis.Instruction) -> None:
    run.result = run.pop(1)


def _value_type(value: Any) -> Type:
    if type(value) in _SCALARS:
        return type(value)
    if type(value) is tuple and value:
        return GenericAlias(tuple, tuple(_value_type(each) or Any for each in value))
    return None


def _load_global(run: _Evaluation, instruction: dis.Instruction) -> None:
    name = instruction.argval
    variables = run.function.__globals__
    found = variables[name] if name in variables else getattr(builtins, name, None)
    run.stack.append(_named(found))


def _load_closure(run: _Evaluation, instruction: dis.Instruction) -> None:
    names = run.function.__code__.co_freevars
    cells = dict(zip(names, run.function.__closure__ or (), strict=True))
    try:
        run.stack.append(_named(cells[instruction.argval].cell_contents))
    except (KeyError, ValueError):
        raise _UnknownError from None


def _named(value: Any) -> Any:
    if isinstance(value, ModuleType):
        return _Function(lambda *arguments: None, value)
    if callable(value):
        return _Function(lambda *arguments: result_type(value, *arguments), value)
    return _value_type(value)


def _load_attribute(run: _Evaluation, instruction: dis.Instruction) -> None:
    (owner,) = run.pop(1)
    name = instruction.argval
    if isinstance(owner, _Function):
        target = getattr(owner.target, name, None)
        run.stack.append(_named(target) if isinstance(owner.target, ModuleType | type) else None)
        return
    found = None if owner is None else attribute_type(owner, name)
    if found is None and owner is not None:
        found = _Function(lambda *arguments: method_result(owner, name, arguments))
    run.stack.append(found)


def _call(run: _Evaluation, instruction: dis.Instruction) -> None:
    arguments = tuple(_plain(each) for each in run.pop(instruction.arg or 0))
    (function,) = run.pop(1)
    found = None
    if isinstance(function, _Function):
        found = function.call(*(() if run.keywords else arguments))
    run.stack.append(found)
    run.keywords = False


def _keyword_names(run: _Evaluation, instruction: dis.Instruction) -> None:
    run.keywords = True


def _call_with_keywords(run: _Evaluation, instruction: dis.Instruction) -> None:
    run.pop(1)
    run.keywords = True
    _call(run, instruction)


def _build_tuple(run: _Evaluation, instruction: dis.Instruction) -> None:
    run.stack.append(_tuple_type(run.pop(instruction.arg or 0)))


def _tuple_type(members: list[Any]) -> Type:
    """A member of unknown type is Any: the other ones are still known."""
    known = tuple(Any if _plain(each) is None else _member(each) for each in members)
    return GenericAlias(tuple, known) if known else None


def _member(of: Type) -> Type:
    """The type of an element of a container, which may be None: types are known without that."""
    is_plain = isinstance(of, type) or get_origin(of) is not None
    return of | None if is_plain else of


def _build_list(run: _Evaluation, instruction: dis.Instruction) -> None:
    run.stack.append(_list_type(run.pop(instruction.arg or 0)))


def _list_type(members: list[Any]) -> Type:
    if members and _plain(members[0]) is not None and all(each == members[0] for each in members):
        return GenericAlias(list, (_member(members[0]),))
    return None


def _build_map(run: _Evaluation, instruction: dis.Instruction) -> None:
    items = run.pop(2 * (instruction.arg or 0))
    run.stack.append(_map_type(items[0::2], items[1::2]))


def _build_map_of_constants(run: _Evaluation, instruction: dis.Instruction) -> None:
    names = get_args(run.pop(1)[0])
    run.stack.append(_map_type(list(names), run.pop(instruction.arg or 0)))


def _map_type(keys: list[Any], values: list[Any]) -> Type:
    """A dict of strings to plain values is JSON; anything else is unknown."""
    if keys and all(key is str for key in keys) and all(value in _SCALARS for value in values):
        return GenericAlias(dict, (str, _member(values[0]) if len(set(values)) == 1 else Any))
    return None


def _string(count: Callable[[dis.Instruction], int]) -> Any:
    def run_instruction(run: _Evaluation, instruction: dis.Instruction) -> None:
        run.pop(count(instruction))
        run.stack.append(str)

    return run_instruction


def _binary(run: _Evaluation, instruction: dis.Instruction) -> None:
    left, right = run.pop(2)
    run.stack.append(
        _subscript(left) if instruction.argrepr == "[]"
        else _arithmetic(instruction.argrepr.removesuffix("="), left, right)
    )


def _binary_subscript(run: _Evaluation, instruction: dis.Instruction) -> None:
    left, _ = run.pop(2)
    run.stack.append(_subscript(left))


def _subscript(of: Any) -> Type:
    of, arguments = plain_type(_plain(of)), get_args(_plain(of))
    if of is str:
        return str
    if get_origin(of) is dict:
        return known_type(arguments[1])
    return None


def _arithmetic(operator: str, left: Any, right: Any) -> Type:
    left, right = plain_type(_plain(left)), plain_type(_plain(right))
    if left in _NUMBERS and right in _NUMBERS:
        if operator == "/":
            return float
        if operator in ("+", "-", "*", "//", "%"):
            return float if float in (left, right) else int
        return int if operator in ("&", "|", "^", "<<", ">>") and left is right is int else None
    if left is str and operator in ("+", "%", "*"):
        return str if operator == "%" or right is {"+": str, "*": int}[operator] else None
    if operator == "+" and left is not None and left == right:
        return left if left is bytes or get_origin(left) is list else None
    return None


def _compare(run: _Evaluation, instruction: dis.Instruction) -> None:
    left, right = run.pop(2)
    run.stack.append(bool if left in _SCALARS and right in _SCALARS else None)


def _test(count: int) -> Any:
    def run_instruction(run: _Evaluation, instruction: dis.Instruction) -> None:
        run.pop(count)
        run.stack.append(bool)

    return run_instruction


def _negative(run: _Evaluation, instruction: dis.Instruction) -> None:
    (of,) = run.pop(1)
    run.stack.append(of if of in _NUMBERS else None)


_HANDLERS: dict[str, Callable[[_Evaluation, dis.Instruction], None]] = {
    **dict.fromkeys(
        ("RESUME", "NOP", "CACHE", "PRECALL", "PUSH_NULL", "COPY_FREE_VARS", "NOT_TAKEN"), _skip
    ),
    **dict.fromkeys(
        (
            "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_FAST_LOAD_FAST",
            "LOAD_FAST_BORROW_LOAD_FAST_BORROW",
        ),
        _load_variables,
    ),
    "STORE_FAST": _store_variable,
    "LOAD_CONST": _load_constant, "LOAD_SMALL_INT": _load_constant,
    "RETURN_CONST": _return_constant, "RETURN_VALUE": _return,
    "LOAD_GLOBAL": _load_global, "LOAD_DEREF": _load_closure,
    "LOAD_ATTR": _load_attribute, "LOAD_METHOD": _load_attribute,
    "CALL": _call, "KW_NAMES": _keyword_names, "CALL_KW": _call_with_keywords,
    "BUILD_TUPLE": _build_tuple, "BUILD_LIST": _build_list, "BUILD_MAP": _build_map,
    "BUILD_CONST_KEY_MAP": _build_map_of_constants,
    "BUILD_STRING": _string(lambda instruction: instruction.arg or 0),
    "FORMAT_VALUE": _string(lambda instruction: 2 if (instruction.arg or 0) & 4 else 1),
    "FORMAT_SIMPLE": _string(lambda instruction: 1),
    "FORMAT_WITH_SPEC": _string(lambda instruction: 2),
    "CONVERT_VALUE": _string(lambda instruction: 1),
    "BINARY_OP": _binary, "BINARY_SUBSCR": _binary_subscript,
    "COMPARE_OP": _compare, "CONTAINS_OP": _test(2), "IS_OP": _test(2),
    "UNARY_NOT": _test(1), "TO_BOOL": _test(1),
    "UNARY_NEGATIVE": _negative,
}
