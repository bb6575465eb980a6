"""Compares the results of penstock with those of Kafka Streams (README.md, section 9)."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable
from typing import Any

from conformance.cases import Case
from conformance.runner import CaseResult
from penstock import errors

#: Cases in which penstock differs on purpose, with the reason. They are counted separately.
DELIBERATE: dict[str, str] = {
    "serdes-lost-with-named-grouping": "The serdes are inferred, where Kafka Streams has none.",
}

#: The parts that each choice of `--only` compares, most important first.
PARTS: dict[str, tuple[str, ...]] = {
    "outputs": ("error", "output"),
    "stores": ("stores", "queries", "internal_stores"),
    "describe": ("describe",),
}
EVERYTHING = (
    "error", "output", "stores", "queries", "observed", "printed", "dropped", "branches",
    "internal_stores", "internal_topics", "describe",
)

#: Headers of a dead letter queue whose values depend on the implementation. The comparison checks
#: only that they exist.
_IMPLEMENTATION_HEADERS = {
    "__streams.errors.exception", "__streams.errors.message", "__streams.errors.stacktrace"
}

_JAVA_NAMES: tuple[tuple[type[BaseException], frozenset[str]], ...] = (
    (errors.TopologyException, frozenset({"TopologyException"})),
    (errors.ConfigException, frozenset({"ConfigException"})),
    (errors.InvalidStateStoreException, frozenset({"InvalidStateStoreException"})),
    (errors.ProcessorStateException, frozenset({"ProcessorStateException"})),
    (errors.StreamsException, frozenset({"StreamsException", "SerializationException"})),
    (TypeError, frozenset({"NullPointerException", "ClassCastException"})),
    (re.error, frozenset({"PatternSyntaxException"})),
    (ValueError, frozenset({"IllegalArgumentException", "NumberFormatException"})),
    (KeyError, frozenset({"IllegalArgumentException", "NoSuchElementException"})),
    (IndexError, frozenset({"ArrayIndexOutOfBoundsException", "IndexOutOfBoundsException"})),
    (NotImplementedError, frozenset({"UnsupportedOperationException"})),
    (RuntimeError, frozenset({"RuntimeException", "IllegalStateException"})),
)


def first_difference(
    case: Case, result: CaseResult, parts: tuple[str, ...] = EVERYTHING
) -> str | None:
    """Describe the first difference, or return None if there is none."""
    expect = case["expect"]
    wrong = _error_difference(expect.get("error"), result)
    if wrong is not None and ("error" in parts or result.exception is not None):
        return wrong
    for part in parts:
        if part == "error":
            continue
        difference = _COMPARERS.get(part, _plain)(expect.get(part), result.found.get(part), part)
        if difference is not None:
            return difference
    return None


def java_names(error: BaseException) -> frozenset[str]:
    """The names of the Java exceptions that this Python exception corresponds to."""
    for python_type, names in _JAVA_NAMES:
        if isinstance(error, python_type):
            return names
    return frozenset({type(error).__name__})


def last_lines(error: BaseException, count: int = 6) -> str:
    """The last lines of the traceback of the innermost cause, indented."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = "".join(traceback.format_exception(error, chain=False)).rstrip().splitlines()
    return "\n".join(f"      {line}" for line in lines[-count:])


def _error_difference(expected: dict[str, Any] | None, result: CaseResult) -> str | None:
    error = result.exception
    if expected is None:
        if error is None:
            return None
        return (
            f"error: unexpected {type(error).__name__} at {result.at}: {error}\n"
            f"{last_lines(error)}"
        )
    wanted = f"{expected['type']} at {expected['at']}"
    if error is None:
        return f"error: expected {wanted} ({expected.get('message')}), but nothing was raised"
    if expected["type"] in java_names(error) and expected["at"] == result.at:
        return None
    return (
        f"error: expected {wanted} ({expected.get('message')}), "
        f"got {type(error).__name__} at {result.at}: {error}\n{last_lines(error)}"
    )


def _plain(expected: Any, got: Any, part: str) -> str | None:
    if _same(expected, got):
        return None
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in sorted({*expected, *got}):
            if not _same(expected.get(key), got.get(key)):
                return _plain(expected.get(key), got.get(key), f"{part}[{key}]")
    if isinstance(expected, list) and isinstance(got, list):
        for i, (want, have) in enumerate(zip(expected, got, strict=False)):
            if not _same(want, have):
                return f"{part}[{i}]: expected {_show(want)}, got {_show(have)}"
        longer, word = (expected, "missing") if len(expected) > len(got) else (got, "too many")
        at = min(len(expected), len(got))
        return f"{part}: {abs(len(expected) - len(got))} {word}, from [{at}] {_show(longer[at])}"
    return f"{part}: expected {_show(expected)}, got {_show(got)}"


def _output(expected: Any, got: Any, part: str) -> str | None:
    return _plain(_masked(expected or {}), _masked(got or {}), part)


def _observed(expected: Any, got: Any, part: str) -> str | None:
    return _plain(expected or {}, got or {}, part)


def _describe(expected: Any, got: Any, part: str) -> str | None:
    if expected == got or expected is None:
        return None
    return _plain(expected.split("\n"), (got or "").split("\n"), part)


def _dropped(expected: Any, got: Any, part: str) -> str | None:
    return None if expected is None else _plain(expected, got, part)


_COMPARERS: dict[str, Callable[[Any, Any, str], str | None]] = {
    "output": _output,
    "observed": _observed,
    "describe": _describe,
    "dropped": _dropped,
}


def _masked(output: dict[str, Any]) -> dict[str, Any]:
    return {
        topic: [
            {**record, "headers": [_masked_header(*header) for header in record["headers"]]}
            if "headers" in record
            else record
            for record in records
        ]
        for topic, records in output.items()
        if records
    }


def _masked_header(name: str, value: str | None) -> list[str | None]:
    return [name, "(own words)"] if name in _IMPLEMENTATION_HEADERS else [name, value]


def _same(a: Any, b: Any) -> bool:
    """JSON equality: `true` is not equal to 1."""
    return a == b and _show(a) == _show(b)


def _show(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
