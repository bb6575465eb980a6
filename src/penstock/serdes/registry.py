"""Avro, Protobuf and JSON Schema with a schema registry: the extra `penstock[registry]`.

    registry = SchemaRegistry("http://localhost:8081")
    orders = registry.avro(schema, of=Order)

The serdes use the client and the serializers of confluent-kafka, so the bytes are those of its
other clients. Nothing is imported or connected before the first record. Clients are created once
per process and settings, and are never pickled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack
from urllib.parse import urlsplit

import msgspec

from penstock.errors import SchemaRegistryException, SerializationException
from penstock.extras import explain_missing_extra
from penstock.record import Headers
from penstock.serdes.base import Serde
from penstock.serdes.headers import HasHeaders, HeadersSerde, MutableHeaders
from penstock.serdes.types import is_model
from penstock.serdes.value_conversion import value_converters

T = TypeVar("T")
Subject = Literal["topic", "record", "topic_record"]
Format = Literal["avro", "json", "protobuf"]

#: (process id, settings) -> client. A forked process must not share a connection.
_clients: dict[tuple[int, tuple[tuple[str, Any], ...]], Any] = {}


class SerdeSettings(TypedDict, total=False):
    """The options of serdes; those of `SchemaRegistry` are the defaults of its serdes.

    `subject`: the name of the schema in the registry, by topic (`orders-value`), by record name, or
    by both. `schema_id`: where the id of the schema is written, before the value ("prefix") or in a
    header; both are read. `auto_register`: register a missing schema, instead of failing.
    `use_latest`: write with the latest schema of the subject; implies `auto_register=False`.
    `normalize`: let the registry normalize the schema before it is compared.
    """

    subject: Subject
    schema_id: Literal["prefix", "header"]
    auto_register: bool
    use_latest: bool
    normalize: bool


class SchemaRegistry:
    """A schema registry, and the serdes that use it.

    `auth` is a user name and a password. `config` has further settings of confluent-kafka's
    `SchemaRegistryClient`, such as `ssl.ca.location`. Neither is shown in logs or errors.
    """

    def __init__(
        self, url: str, *, auth: tuple[str, str] | None = None,
        config: Mapping[str, Any] | None = None, **settings: Unpack[SerdeSettings],
    ) -> None:
        if "@" in urlsplit(url).netloc:
            raise ValueError(
                "The address of a schema registry must not contain a password. Pass "
                "auth=(user, password)."
            )
        self.url = url
        self._config = {"url": url, **(config or {})}
        if auth is not None:
            self._config["basic.auth.user.info"] = ":".join(auth)
        self._settings = _checked({**_DEFAULTS, **settings})

    def __repr__(self) -> str:
        return f"<SchemaRegistry {self.url}>"

    def avro(
        self, schema: str | Path | Mapping[str, Any] | None = None, *, of: type[T] | None = None,
        to_dict: Callable[[T], Any] | None = None, from_dict: Callable[[Any], T] | None = None,
        **settings: Unpack[SerdeSettings],
    ) -> Serde[T]:
        """Return a serde of Avro records.

        Values are dicts, or objects of the class `of`: a dataclass, a `msgspec.Struct` or a
        pydantic model. `to_dict` and `from_dict` convert other classes. The schema is JSON, a file
        or a dict; values are read into it from the schema that wrote them. Without a schema, values
        are read with the schema that wrote them, and written only with `use_latest`.
        """
        converters = value_converters(of, to_dict, from_dict, keep_logical_types=True)
        return self._serde("avro", _schema_text(schema), of, converters, settings)

    def json_schema(
        self, schema: str | Path | Mapping[str, Any] | None = None, *, of: type[T] | None = None,
        to_dict: Callable[[T], Any] | None = None, from_dict: Callable[[Any], T] | None = None,
        **settings: Unpack[SerdeSettings],
    ) -> Serde[T]:
        """Return a serde of JSON that a JSON Schema describes. Values are validated.

        Values are dicts, or objects as in `avro`. Without a schema, that of `of` is used.
        """
        if schema is None and of is not None:
            schema = _schema_of(of)
        converters = value_converters(of, to_dict, from_dict, keep_logical_types=False)
        return self._serde("json", _schema_text(schema), of, converters, settings)

    def protobuf(self, of: type[T], **settings: Unpack[SerdeSettings]) -> Serde[T]:
        """Return a serde of a Protobuf message class, which `protoc` has generated."""
        if not hasattr(of, "DESCRIPTOR"):
            raise TypeError(f"Expected a message class that protoc has generated, not {of!r}.")
        return self._serde("protobuf", None, of, (None, None), settings)

    def _serde(
        self, format_: Format, schema: str | None, of: Any,
        converters: tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None],
        settings: SerdeSettings,
    ) -> Serde[Any]:
        checked = _checked({**self._settings, **settings})
        return RegistrySerde(_Codec(self, format_, schema, of, *converters, settings=checked))

    def client(self) -> Any:
        """Return confluent-kafka's client of this registry, one per process."""
        key = os.getpid(), tuple(sorted(self._config.items()))
        if key not in _clients:
            with explain_missing_extra("registry"):
                from confluent_kafka.schema_registry import (  # noqa: PLC0415
                    SchemaRegistryClient,
                )
            _clients[key] = SchemaRegistryClient.new_client(dict(self._config))
        return _clients[key]


_DEFAULTS: SerdeSettings = {
    "subject": "topic", "schema_id": "prefix", "auto_register": True, "use_latest": False,
    "normalize": False,
}
#: The version of JSON Schema that msgspec and pydantic generate.
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CHOICES = {"subject": ("topic", "record", "topic_record"), "schema_id": ("prefix", "header")}


def _checked(settings: Any) -> SerdeSettings:
    for name, value in settings.items():
        if name not in _DEFAULTS:
            raise TypeError(
                f"Unknown option '{name}' of a schema registry. Options: {', '.join(_DEFAULTS)}."
            )
        choices = _CHOICES.get(name, (True, False))
        if value not in choices:
            known = ", ".join(map(repr, choices))
            raise ValueError(f"{name} must be one of {known}, not {value!r}.")
    return settings  # type: ignore[no-any-return]


def _schema_text(schema: str | Path | Mapping[str, Any] | None) -> str | None:
    if isinstance(schema, Path):
        return schema.read_text(encoding="utf-8")
    return schema if schema is None or isinstance(schema, str) else json.dumps(schema)


def _schema_of(of: Any) -> dict[str, Any]:
    """Return the JSON Schema of a class. Registries expect the object at the top level."""
    if is_model(of):
        return {"$schema": _DIALECT, **of.model_json_schema()}
    schema = msgspec.json.schema(of)
    definitions = schema.get("$defs", {})
    name = schema.get("$ref", "").rpartition("/")[2]
    if name in definitions:
        schema = {**definitions[name], "$defs": definitions}
    return {"$schema": _DIALECT, **schema}


@dataclass(frozen=True)
class _Codec:
    """The parts of a serde of a registry. Pickled with the topology."""

    registry: SchemaRegistry = field(repr=False)
    format: Format
    schema: str | None
    of: Any
    to_dict: Callable[[Any], Any] | None
    from_dict: Callable[[Any], Any] | None
    settings: SerdeSettings

    @property
    def name(self) -> str:
        of = getattr(self.of, "__name__", None)
        return self.format if of is None else f"{self.format}({of})"

    def functions(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Create confluent-kafka's serializer and deserializer."""
        with explain_missing_extra("registry"):
            import confluent_kafka.schema_registry as confluent  # noqa: PLC0415
        client = self.registry.client()
        settings = self.settings
        strategy = getattr(confluent, f"{settings['subject']}_subject_name_strategy")
        write = {
            "auto.register.schemas": settings["auto_register"] and not settings["use_latest"],
            "use.latest.version": settings["use_latest"],
            "normalize.schemas": settings["normalize"], "subject.name.strategy": strategy,
            "schema.id.serializer": getattr(
                confluent, f"{settings['schema_id']}_schema_id_serializer"
            ),
        }
        # A schema id in a header is put before the value, where this function finds both kinds.
        read = {
            "subject.name.strategy": strategy,
            "schema.id.deserializer": confluent.prefix_schema_id_deserializer,
        }
        to_dict = self.to_dict and _without_context(self.to_dict)
        from_dict = self.from_dict and _without_context(self.from_dict)
        with explain_missing_extra("registry"):
            if self.format == "avro":
                from confluent_kafka.schema_registry import avro  # noqa: PLC0415

                return (
                    avro.AvroSerializer(client, self.schema, to_dict, write),
                    avro.AvroDeserializer(client, self.schema, from_dict, conf=read),
                )
            if self.format == "json":
                from confluent_kafka.schema_registry import json_schema  # noqa: PLC0415

                return (
                    json_schema.JSONSerializer(self.schema, client, to_dict, write),
                    json_schema.JSONDeserializer(self.schema, from_dict, client, read),
                )
            from confluent_kafka.schema_registry import protobuf  # noqa: PLC0415

            return (
                protobuf.ProtobufSerializer(self.of, client, write),
                protobuf.ProtobufDeserializer(self.of, read, client),
            )


def _without_context(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda value, _: function(value)


class RegistrySerde(HeadersSerde[Any]):
    """A serde of a schema registry, for the keys or values of one topic or store.

    In stores the id of the schema is always before the value: rows of older schemas stay readable.
    """

    def __init__(
        self, codec: _Codec, topic: str | None = None, is_key: bool = False, in_store: bool = False
    ) -> None:
        super().__init__()
        self._codec = codec
        self._topic = topic
        self._is_key = is_key
        self._in_store = in_store
        self.name = codec.name
        self.python_type = codec.of
        self.recipe = (RegistrySerde, (codec, topic, is_key, in_store))

    def for_topic(self, topic: str, is_key: bool) -> Serde[Any]:
        """Return the serde for a topic, whose name is part of the subject."""
        return RegistrySerde(self._codec, topic, is_key)

    def for_store(self, topic: str, is_key: bool) -> Serde[Any]:
        """Return the serde for a store: it neither reads nor writes headers."""
        settings: SerdeSettings = {**self._codec.settings, "schema_id": "prefix"}
        return RegistrySerde(replace(self._codec, settings=settings), topic, is_key, True)

    def with_headers_of(self, record: HasHeaders) -> Serde[Any]:
        """Return the serde for a record."""
        if self._in_store:
            return Serde(self.serialize, self.deserialize, self.name)
        return super().with_headers_of(record)

    def of_any_avro(self) -> Serde[Any]:
        """Return a serde that reads any Avro value of the registry, by the schema that wrote it."""
        return self._codec.registry.avro()

    @cached_property
    def _functions(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        return self._codec.functions()

    def serialize_with_headers(self, value: Any, headers: MutableHeaders) -> bytes:
        """Return the bytes of a value. Replaces a schema id that the headers already have."""
        name = self._header_name
        if any(pair[0] == name for pair in headers):
            headers[:] = [pair for pair in headers if pair[0] != name]
        try:
            data: bytes = self._functions[0](value, self._context(headers))
        except Exception as error:
            raise self._translated(error, "serialized", registry_decides=True) from error
        return data

    def deserialize_with_headers(self, data: bytes, headers: Headers) -> Any:
        """Return the value of bytes. Their schema id is in a header or before the value."""
        schema_id = headers.last(self._header_name)
        if schema_id is not None:
            data = schema_id + data
        try:
            return self._functions[1](data, self._context([]))
        except Exception as error:
            raise self._translated(error, "deserialized", registry_decides=False) from error

    @property
    def _header_name(self) -> str:
        return "__key_schema_id" if self._is_key else "__value_schema_id"

    def _context(self, headers: MutableHeaders) -> Any:
        if self._topic is None:
            raise SerializationException(
                f"The {self.name} serde has no topic, which is part of the name of its schema. "
                "Outside of a topology call serde.for_topic(topic, is_key) first."
            )
        from confluent_kafka.serialization import (  # noqa: PLC0415
            MessageField,
            SerializationContext,
        )

        part: Any = MessageField.KEY if self._is_key else MessageField.VALUE
        shared: Any = headers
        return SerializationContext(self._topic, part, shared)

    def _translated(self, error: Exception, verb: str, registry_decides: bool) -> Exception:
        """Errors of the record go to the exception handlers, those of the registry do not."""
        if isinstance(error, SerializationException | SchemaRegistryException | ImportError):
            return error
        status = getattr(error, "http_status_code", None)
        unreachable = type(error).__module__.partition(".")[0] in {"httpx", "httpx2", "httpcore"}
        if unreachable or (status is not None and (registry_decides or status != 404)):
            return SchemaRegistryException(
                f"The schema registry {self._codec.registry.url} could not be used for topic "
                f"{self._topic}: {error}. Check its address, the credentials and the schema."
            )
        return SerializationException(f"The value cannot be {verb} as {self.name}: {error}")
