"""The values that flow through a case: string, long, JSON, null, and windowed keys.

In Python a string is `str`, a long `int` in 64 bits, null `None`, a JSON object or array `dict`
or `list`, a JSON boolean `bool`. A JSON string or number at the root of a value is a `JsonScalar`:
the functions of a case do not treat it as a string or a long.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from penstock import Windowed

_ESCAPE = re.compile(r"\\(?:u00([0-9a-f]{2})|.)")


@dataclass(frozen=True, slots=True)
class JsonScalar:
    """A JSON text or number at the root of a JSON value."""

    value: str | int | float


def is_long(value: Any) -> bool:
    """True for a long. A boolean is not a long, although it is an int in Python."""
    return type(value) is int


def wrap_long(number: int) -> int:
    """The number as a signed 64-bit integer, with overflow."""
    return ((number + 2**63) & (2**64 - 1)) - 2**63


def from_json_text(data: bytes) -> Any:
    """Deserialize as the json serde does: JSON null is null."""
    parsed = json.loads(data)
    is_text_or_number = isinstance(parsed, (str, int, float)) and not isinstance(parsed, bool)
    return JsonScalar(parsed) if is_text_or_number else parsed


def canonical(node: Any) -> str:
    """JSON text with sorted keys and no spaces, as the reference writes it."""
    text = json.dumps(
        _plain(node), sort_keys=True, ensure_ascii=False, separators=(",", ":")
    )
    # Control characters are escaped with capital hexadecimal digits by the reference.
    return _ESCAPE.sub(_upper_hex, text) if "\\u" in text else text


def json_of(value: Any) -> Any:
    """A value as JSON, as in an expectation or inside another JSON value."""
    if isinstance(value, JsonScalar):
        return value.value
    if isinstance(value, Windowed):
        return {"key": json_of(value.key), "start": value.window.start, "end": value.window.end}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"hex": bytes(value).hex()}
    if value is None or isinstance(value, (str, int, float, dict, list)):
        return value
    return f"?{type(value).__name__}"


def text(value: Any) -> str:
    """Format a value as the Java reference does."""
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if type(value) is int:
        return str(value)
    if isinstance(value, Windowed):
        return f"[{text(value.key)}@{value.window.start}/{value.window.end}]"
    if isinstance(value, JsonScalar):
        return canonical(value.value)
    if isinstance(value, (dict, list, bool, float)):
        return canonical(value)
    return str(value)


def equal(a: Any, b: Any) -> bool:
    """Typed equality: the long 1, the string "1" and JSON `true` are three values."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (dict, list)):
        return canonical(a) == canonical(b)
    return bool(a == b)


def code_units(string: str) -> bytes:
    """Java's view of a string: orders as `compareTo` does."""
    return string.encode("utf-16-be", "surrogatepass")


def characters(string: str) -> list[str]:
    """The UTF-16 characters of a string; a pair of surrogates counts as two."""
    if string.isascii():
        return list(string)
    units = code_units(string)
    return [
        units[i : i + 2].decode("utf-16-be", "surrogatepass") for i in range(0, len(units), 2)
    ]


def length(string: str) -> int:
    """The number of UTF-16 characters."""
    return len(string) if string.isascii() else len(code_units(string)) // 2


def _plain(node: Any) -> Any:
    return node.value if isinstance(node, JsonScalar) else node


def _upper_hex(match: re.Match[str]) -> str:
    return f"\\u00{match[1].upper()}" if match[1] else match[0]
