"""Kafka's property names and texts, as settings of `StreamsConfig`."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.errors import ConfigException
from penstock.serdes.builtin import Serde, Serdes

#: Settings whose property name is not the field's name with dots for underscores.
PROPERTY_OF: Mapping[str, str] = {
    "processor_wrapper": "processor.wrapper.class",
    "dsl_store_suppliers": "dsl.store.suppliers.class",
}
#: Names that Kafka has given up; they count only where the present name is not given.
_FORMER: Mapping[str, str] = {
    "default.deserialization.exception.handler": "deserialization_exception_handler",
    "default.production.exception.handler": "production_exception_handler",
    "cache.max.bytes.buffering": "statestore_cache_max_bytes",
    "default.dsl.store": "dsl_store_suppliers",
}
_SETTING_OF: Mapping[str, str] = {
    **{name: setting for setting, name in PROPERTY_OF.items()},
    **_FORMER,
}
#: Settings that have an effect and are no fields of `StreamsConfig`.
_OTHERS = frozenset((
    "auto.offset.reset", "bootstrap.servers", "metadata.max.age.ms", "metrics.num.samples",
    "metrics.sample.window.ms", "penstock.batch.max.bytes", "penstock.batch.max.records",
    "penstock.batch.target.ms", "penstock.parallelism", "session.timeout.ms",
))
#: What stands behind these is for others to understand.
_FOR_OTHERS = (
    "admin.", "consumer.", "global.consumer.", "log.", "main.consumer.", "producer.",
    "restore.consumer.", "sasl.", "spark.", "ssl.", "topic.",
)
#: How alike two names are (1: equal) if one of them is taken for a slip.
_ALIKE = 0.85

_INTEGERS = frozenset((
    "num_stream_threads", "buffered_records_per_partition", "statestore_cache_max_bytes",
    "num_standby_replicas", "acceptable_recovery_lag", "replication_factor",
))

#: Kafka's serdes by the part of their class name after `Serdes$` and before `Serde`, and the
#: short names, in lower case.
_SERDES: Mapping[str, Serde[Any]] = {
    "string": Serdes.string(),
    "long": Serdes.long(),
    "integer": Serdes.integer(),
    "short": Serdes.short(),
    "float": Serdes.float(),
    "double": Serdes.double(),
    "boolean": Serdes.boolean(),
    "uuid": Serdes.uuid(),
    "bytes": Serdes.bytes(),
    "bytearray": Serdes.byte_array(),
    "bytebuffer": Serdes.byte_buffer(),
    "void": Serdes.void(),
    "json": Serdes.json(),
}

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
#: A key ends at the first `=`, `:` or blank that has no backslash before it.
_KEY_AND_VALUE = re.compile(
    r"(?P<key>(?:\\.|[^\\=:\s])*)(?:\s*[=:]\s*|\s+|$)(?P<value>.*)", re.DOTALL
)


def parse_settings(
    properties: Mapping[str, Any], known: set[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings among the properties, with their texts parsed, and what is left over.

    Names that `StreamsConfig` has, with underscores, are taken as well. Any name may be left over,
    but not one that looks like a known one.
    """
    settings: dict[str, Any] = {}
    left_over: dict[str, Any] = {}
    for name in sorted(properties, key=lambda name: name not in _FORMER):
        value = properties[name]
        setting = _SETTING_OF.get(name, name.replace(".", "_"))
        if name == "bootstrap.servers":
            servers = value if isinstance(value, str) else ",".join(value)
            settings.setdefault("log", f"kafka://{servers}")
            left_over[name] = value
        elif setting in known and setting != "extra":
            settings[setting] = _parsed(name, setting, value)
        else:
            _check_spelling(name, known)
            left_over[name] = value
    if "log" in properties:
        settings["log"] = properties["log"]
    return settings, left_over


def _check_spelling(name: str, known: set[str]) -> None:
    """Raise for a name that was surely meant to be another."""
    said = name.lower().replace("_", ".")
    if name in _OTHERS or name.startswith(_FOR_OTHERS):
        return
    names = {PROPERTY_OF.get(setting, setting.replace("_", ".")) for setting in known} | _OTHERS
    near = difflib.get_close_matches(said, sorted(each for each in names if "." in each), 1, _ALIKE)
    # A known name with something of its own before or behind it is no slip: 'my.client.id'.
    if not near or said.endswith(f".{near[0]}") or said.startswith(f"{near[0]}."):
        return
    raise ConfigException(
        f"There is no setting '{name}'. Did you mean '{near[0]}'? (A setting for your own code "
        "may have any name that is less like one of Kafka's.)"
    )


def _parsed(name: str, setting: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if setting in _INTEGERS or setting.endswith("_ms"):
        try:
            return int(text)
        except ValueError:
            raise ConfigException(f"{name} must be an integer, not '{value}'.") from None
    if setting == "ensure_explicit_internal_resource_naming":
        if text.lower() not in {"true", "false"}:
            raise ConfigException(f"{name} must be true or false, not '{value}'.")
        return text.lower() == "true"
    if setting in {"default_key_serde", "default_value_serde"}:
        return _serde(name, text)
    if setting in {"upgrade_from", "errors_dead_letter_queue_topic_name"}:
        return text or None
    if setting == "processor_wrapper" and text.endswith(".NoOpProcessorWrapper"):
        return None
    return text


def _serde(name: str, text: str) -> Serde[Any]:
    short = re.split(r"[.$]", text)[-1].lower()
    serde = _SERDES.get(short) or _SERDES.get(short.removesuffix("serde"))
    if serde is None:
        raise ConfigException(
            f"{name} names no serde that is known here: '{text}'. "
            f"There are: {', '.join(_SERDES)}; or set it to a serde in Python."
        )
    return serde


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """The entries of a Java `.properties` file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigException(
            f"The properties file '{os.fspath(path)}' cannot be read: {error.strerror}."
        ) from error
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    """The entries of a text in Java's properties format; of a name given twice, the last."""
    entries: dict[str, str] = {}
    logical = ""
    for natural in [*re.split(r"\r\n|\r|\n", text), ""]:
        line = natural.lstrip(" \t\f")
        if not logical and line[:1] in {"", "#", "!"}:
            continue
        logical += line
        # An odd number of backslashes at the end continues the line.
        if (len(line) - len(line.rstrip("\\"))) % 2:
            logical = logical[:-1]
            continue
        match = _KEY_AND_VALUE.match(logical)
        if match is not None:
            entries[_unescaped(match["key"])] = _unescaped(match["value"])
        logical = ""
    return entries


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        return _ESCAPES.get(code, code)

    return _ESCAPED.sub(character, text)
