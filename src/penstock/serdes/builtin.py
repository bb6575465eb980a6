"""`Serdes`: the built-in serdes, in Kafka's wire formats."""

from __future__ import annotations

import builtins
import re
import struct
import uuid as uuids
from collections.abc import Callable
from types import NoneType
from typing import Any, TypeVar, get_origin, overload

from penstock.errors import SerializationException
from penstock.java_names import JavaNames
from penstock.native import core
from penstock.serdes.base import Serde, WrappingSerde, malformed_bytes_error, wrong_type_error
from penstock.serdes.change import ChangeSerde, change_serde
from penstock.serdes.json import json_functions
from penstock.serdes.msgpack import msgpack_functions
from penstock.serdes.types import json_supports, plain_type
from penstock.serdes.windowed import WindowedSerde, WindowedSerdes
from penstock.windows import Windowed

__all__ = ["Serde", "Serdes", "WindowedSerdes", "WindowedSerde", "ChangeSerde", "change_serde"]

T = TypeVar("T")

_INT32 = struct.Struct(">i")

#: The format of Java's UUID.fromString, which accepts any number of digits in a group.
_UUID_TEXT = re.compile("-".join(["([0-9a-fA-F]+)"] * 5))


def _register(
    name: str,
    serialize: Callable[[Any], bytes],
    deserialize: Callable[[bytes], Any],
    fixed_size: int | None = None,
) -> Serde[Any]:
    serde: Serde[Any] = Serde(serialize, deserialize, name, fixed_size)
    serde.recipe = (_get_built_in, (name,))
    _BUILT_IN[name] = serde
    return serde


_BUILT_IN: dict[str, Serde[Any]] = {}


def _get_built_in(name: str) -> Serde[Any]:
    return _BUILT_IN[name]


def _number(name: str, layout: str, kind: type) -> Serde[Any]:
    """Return a serde of fixed-width, big-endian numbers. Floats accept integers."""
    form = struct.Struct(layout)
    pack = form.pack
    unpack = form.unpack
    size = form.size

    def serialize(value: Any) -> bytes:
        # struct would pack True and False as numbers.
        if value.__class__ is not kind and (
            isinstance(value, bool) or not isinstance(value, kind | int)
        ):
            raise wrong_type_error(value, name)
        try:
            return pack(value)
        except (struct.error, OverflowError) as error:
            raise SerializationException(
                f"The number {value!r} does not fit into the {size} bytes of the {name} serde."
            ) from error

    def deserialize(data: bytes) -> Any:
        try:
            return unpack(data)[0]
        except struct.error as error:
            raise malformed_bytes_error(
                f"A {name} has {size} bytes, but {len(data)} were given", data
            ) from error

    return _register(name, serialize, deserialize, size)


def _string_serialize(value: str) -> bytes:
    try:
        return str.encode(value)
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 encoding; Java writes a question mark.
        return str.encode(value, "utf-8", "replace")
    except TypeError:
        raise wrong_type_error(value, "string") from None


def _string_deserialize(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        # Invalid UTF-8 becomes U+FFFD, as in Java: strings always deserialize.
        return data.decode("utf-8", "replace")


def _boolean_serialize(value: bool) -> bytes:
    if value is True:
        return b"\x01"
    if value is False:
        return b"\x00"
    raise wrong_type_error(value, "boolean")


def _boolean_deserialize(data: bytes) -> bool:
    if data == b"\x01":
        return True
    if data == b"\x00":
        return False
    raise malformed_bytes_error("A boolean is one byte, 0 or 1", data)


def _uuid_serialize(value: uuids.UUID) -> bytes:
    if not isinstance(value, uuids.UUID):
        raise wrong_type_error(value, "uuid")
    return str(value).encode()


def _uuid_deserialize(data: bytes) -> uuids.UUID:
    match = _UUID_TEXT.fullmatch(str(data, "utf-8", "replace"))
    if match is None or len(data) > 36:
        raise malformed_bytes_error("A UUID is text of five groups of hexadecimal digits", data)
    groups = [int(group, 16) for group in match.groups()]
    if max(groups) > 2**63 - 1:
        raise malformed_bytes_error("A group of digits of a UUID is too long", data)
    low, mid, version, sequence, node = groups
    number = (low & 0xFFFFFFFF) << 96 | (mid & 0xFFFF) << 80 | (version & 0xFFFF) << 64
    return uuids.UUID(int=number | (sequence & 0xFFFF) << 48 | node & 0xFFFFFFFFFFFF)


def _bytes_serialize(value: bytes) -> bytes:
    if value.__class__ is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise wrong_type_error(value, "bytes")


def _bytes_deserialize(data: bytes) -> bytes:
    return data


def _void_serialize(value: None) -> bytes:
    raise wrong_type_error(value, "void")


def _void_deserialize(data: bytes) -> None:
    raise malformed_bytes_error("A void has no bytes at all", data)


_STRING: Serde[str] = _register("string", _string_serialize, _string_deserialize).with_fast_path(
    str.encode, bytes.decode
)
_LONG: Serde[int] = _number("long", ">q", int)
_INTEGER: Serde[int] = _number("integer", ">i", int)
_SHORT: Serde[int] = _number("short", ">h", int)
_FLOAT: Serde[float] = _number("float", ">f", float)
_DOUBLE: Serde[float] = _number("double", ">d", float)
if core is not None:
    _LONG.with_fast_path(core.write_long, core.read_long)
    _DOUBLE.with_fast_path(core.write_double, core.read_double)
_BOOLEAN: Serde[bool] = _register("boolean", _boolean_serialize, _boolean_deserialize)
_UUID: Serde[uuids.UUID] = _register("uuid", _uuid_serialize, _uuid_deserialize, 36)
_BYTES: Serde[bytes] = _register("bytes", _bytes_serialize, _bytes_deserialize)
_VOID: Serde[None] = _register("void", _void_serialize, _void_deserialize)


def _list_of(inner: Serde[T]) -> Serde[list[T | None]]:
    """Kafka's ListSerde. The first byte is 0 for elements of one size, followed by the indexes of
    nulls; or 1 for elements of several sizes, each preceded by its size, -1 for null."""
    write = inner.serialize
    read = inner.deserialize
    size = inner.fixed_size
    pack = _INT32.pack
    unpack_from = _INT32.unpack_from

    def serialize(value: list[T | None]) -> bytes:
        if not isinstance(value, list | tuple):
            raise wrong_type_error(value, "list")
        parts = [pack(len(value))]
        if size is not None:
            nulls = [pack(index) for index, element in enumerate(value) if element is None]
            parts = [b"\x00", pack(len(nulls)), *nulls, *parts]
            parts.extend(write(element) for element in value if element is not None)
            return b"".join(parts)
        parts.insert(0, b"\x01")
        for element in value:
            if element is None:
                parts.append(b"\xff\xff\xff\xff")
            else:
                data = write(element)
                parts.append(pack(len(data)))
                parts.append(data)
        return b"".join(parts)

    def deserialize(data: bytes) -> list[T | None]:
        try:
            return read_elements(data)
        except struct.error as error:
            raise malformed_bytes_error("A list ended too early", data) from error

    def read_elements(data: bytes) -> list[T | None]:
        position = 1
        nulls: frozenset[int] = frozenset()
        same_size = data[:1] == b"\x00"
        if same_size and size is not None:
            (count,) = unpack_from(data, 1)
            position = 5 + 4 * count
            nulls = frozenset(unpack_from(data, at)[0] for at in range(5, position, 4))
        elif data[:1] != b"\x01":
            raise malformed_bytes_error(f"A list of {inner.name} has an invalid first byte", data)
        (count,) = unpack_from(data, position)
        position += 4
        elements: list[T | None] = []
        for index in range(count):
            length = size or 0
            if not same_size:
                (length,) = unpack_from(data, position)
                position += 4
            if index in nulls or length == -1:
                elements.append(None)
                continue
            end = position + length
            if length < 0 or end > len(data):
                raise malformed_bytes_error("A list ended too early", data)
            elements.append(read(data[position:end]))
            position = end
        return elements

    serde: Serde[list[T | None]] = WrappingSerde(
        (serialize, deserialize), "list", inner, _list_of
    )
    if inner.python_type is not None:
        serde.python_type = list[inner.python_type | None]  # type: ignore[name-defined]
    return serde


def _json_of(of: Any, sort_keys: bool) -> Serde[Any]:
    serialize, deserialize, *fast = json_functions(of, sort_keys=sort_keys)
    name = "json" if of is None else f"json({getattr(of, '__name__', of)})"
    serde: Serde[Any] = Serde(serialize, deserialize, name)
    serde.recipe = (_json_of, (of, sort_keys))
    serde.plain_json = of is None and not sort_keys
    serde.python_type = of
    return serde.with_fast_path(*fast)


def _msgpack_of(of: Any, sort_keys: bool) -> Serde[Any]:
    serialize, deserialize, *fast = msgpack_functions(of, sort_keys=sort_keys)
    name = "msgpack" if of is None else f"msgpack({getattr(of, '__name__', of)})"
    serde: Serde[Any] = Serde(serialize, deserialize, name)
    serde.recipe = (_msgpack_of, (of, sort_keys))
    serde.python_type = of
    return serde.with_fast_path(*fast)


#: The types that have a serde of their own; an `int` is 8 bytes and a `float` a double.
_BY_TYPE: dict[Any, Serde[Any]] = {
    str: _STRING, int: _LONG, float: _DOUBLE, bool: _BOOLEAN, bytes: _BYTES, uuids.UUID: _UUID,
    NoneType: _VOID,
}
for _type, _serde in _BY_TYPE.items():
    _serde.python_type = _type
_INTEGER.python_type = _SHORT.python_type = int
_FLOAT.python_type = float


def find_serde(of: Any, *, sort_keys: bool = False) -> Serde[Any] | None:
    """Return the serde of `Serdes.of`, or None for a type that has none.

    `sort_keys` is that of `Serdes.json`: keys need it, because equal keys must have equal bytes.
    """
    of = plain_type(of)
    if (get_origin(of) or of) is Windowed:
        # The serde of a windowed key depends on the kind and size of the windows.
        return None
    serde = _BY_TYPE.get(of) if of.__hash__ is not None else None
    if serde is None and json_supports(of):
        serde = _json_of(of, sort_keys)
    return serde


def with_sorted_keys(serde: Serde[Any]) -> Serde[Any]:
    """Return a JSON serde that sorts the keys of dicts; return any other serde unchanged."""
    if serde.recipe is None or serde.recipe[0] is not _json_of:
        return serde
    return _json_of(serde.recipe[1][0], True)


class Serdes(JavaNames):
    """The built-in serdes. Their wire formats are those of Kafka's `Serdes`.

    Example:
        >>> Serdes.long().serialize(1)
        b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01'
        >>> Serdes.json().deserialize(b'{"amount": 3}')
        {'amount': 3}
        >>> Serdes.of(list[int])
        <Serde json(list)>
    """

    @staticmethod
    def string() -> Serde[str]:
        """Return a serde of `str`: UTF-8.

        Kafka: Serdes#String
        """
        return _STRING

    @staticmethod
    def long() -> Serde[int]:
        """Return a serde of `int`: 8 bytes, big-endian.

        Kafka: Serdes#Long
        """
        return _LONG

    @staticmethod
    def integer() -> Serde[int]:
        """Return a serde of `int`: 4 bytes, big-endian.

        Kafka: Serdes#Integer
        """
        return _INTEGER

    @staticmethod
    def short() -> Serde[int]:
        """Return a serde of `int`: 2 bytes, big-endian.

        Kafka: Serdes#Short
        """
        return _SHORT

    @staticmethod
    def float() -> Serde[builtins.float]:
        """Return a serde of `float`: 4 bytes, big-endian, with a loss of precision.

        Kafka: Serdes#Float
        """
        return _FLOAT

    @staticmethod
    def double() -> Serde[builtins.float]:
        """Return a serde of `float`: 8 bytes, big-endian.

        Kafka: Serdes#Double
        """
        return _DOUBLE

    @staticmethod
    def boolean() -> Serde[bool]:
        """Return a serde of `bool`: one byte, 0 or 1.

        Kafka: Serdes#Boolean
        """
        return _BOOLEAN

    @staticmethod
    def uuid() -> Serde[uuids.UUID]:
        """Return a serde of `uuid.UUID`: its text of 36 characters.

        Kafka: Serdes#UUID
        """
        return _UUID

    @staticmethod
    def bytes() -> Serde[builtins.bytes]:
        """Return a serde of `bytes`, which are not changed.

        Kafka: Serdes#ByteArray, Serdes#ByteBuffer
        """
        return _BYTES

    byte_array = bytes
    byte_buffer = bytes

    @staticmethod
    def void() -> Serde[None]:
        """Return a serde for null keys or values; any other value is an error.

        Kafka: Serdes#Void
        """
        return _VOID

    @staticmethod
    def list(inner: Serde[T]) -> Serde[builtins.list[T | None]]:
        """Return a serde of lists of `inner`: Kafka's `ListSerde`.

        Args:
            inner: The serde of the elements.

        Kafka: Serdes#ListSerde
        """
        return _list_of(inner)

    @overload
    @staticmethod
    def of(type: type[T]) -> Serde[T]: ...

    @overload
    @staticmethod
    def of(type: Any) -> Serde[Any]: ...

    @staticmethod
    def of(type: Any) -> Serde[Any]:
        """Return the serde for a type.

        `str`, `bool`, `bytes` and `UUID` have the serdes of these names, `int` has `long` and
        `float` has `double`. Dataclasses, `msgspec.Struct`, pydantic models, `list[...]`,
        `dict[...]`, enums, dates and other types that msgspec knows are JSON. `X | None` is the
        serde of X.

        Args:
            type: The Python type.

        Kafka: Serdes#serdeFrom
        """
        serde = find_serde(type)
        if serde is None:
            raise TypeError(
                f"There is no serde for the type {getattr(type, '__qualname__', type)!s}. "
                "Types with a serde: str, int, float, bool, bytes, UUID, dataclasses, "
                "msgspec.Struct, pydantic models, and lists and dicts of them. "
                "For another type write a Serde, for example with Serde.of(serializer, "
                "deserializer)."
            )
        return serde

    @overload
    @staticmethod
    def json(of: None = None, *, sort_keys: bool = False) -> Serde[Any]: ...

    @overload
    @staticmethod
    def json(of: type[T], *, sort_keys: bool = False) -> Serde[T]: ...

    @staticmethod
    def json(of: Any = None, *, sort_keys: bool = False) -> Serde[Any]:
        """Return a serde of JSON.

        Without `of`, values are dicts, lists and scalars. `of` is a dataclass, a `msgspec.Struct`,
        a pydantic model or another type that msgspec supports. JSON null is None. With `sort_keys`,
        equal values have equal bytes: use it for keys that are dicts.

        Args:
            of: The type of the values; None for plain JSON values.
            sort_keys: Whether the names of an object are sorted, so that equal values have equal
                bytes.
        """
        return _json_of(of, sort_keys)

    @overload
    @staticmethod
    def msgpack(of: None = None, *, sort_keys: bool = False) -> Serde[Any]: ...

    @overload
    @staticmethod
    def msgpack(of: type[T], *, sort_keys: bool = False) -> Serde[T]: ...

    @staticmethod
    def msgpack(of: Any = None, *, sort_keys: bool = False) -> Serde[Any]:
        """Return a serde of MessagePack: smaller and faster than JSON, and bytes stay bytes.

        Args:
            of: The type of the values, as in `json`; None for plain values.
            sort_keys: Whether the names of an object are sorted, so that equal values have equal
                bytes.
        """
        return _msgpack_of(of, sort_keys)
