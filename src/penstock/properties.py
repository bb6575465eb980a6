"""Converts Kafka's properties to settings of `StreamsConfig`."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.errors import ConfigException
from penstock.serdes.builtin import Serde, Serdes
from penstock.setting_effects import (
    CONNECTION_SETTINGS,
    LIST_SERDE_SETTINGS,
    NO_EFFECT,
    OTHER_SETTINGS,
)

#: Settings whose property name is not the field name with dots.
PROPERTY_OF: Mapping[str, str] = {
    "processor_wrapper": "processor.wrapper.class",
    "dsl_store_suppliers": "dsl.store.suppliers.class",
}
#: Names that Kafka has deprecated; the current name takes precedence.
_DEPRECATED_NAMES: Mapping[str, str] = {
    "default.deserialization.exception.handler": "deserialization_exception_handler",
    "default.production.exception.handler": "production_exception_handler",
    "cache.max.bytes.buffering": "statestore_cache_max_bytes",
    "default.dsl.store": "dsl_store_suppliers",
}
_SETTING_OF: Mapping[str, str] = {
    **{name: setting for setting, name in PROPERTY_OF.items()},
    **_DEPRECATED_NAMES,
}
#: Settings that have an effect but are not fields of `StreamsConfig`.
_OTHER_SETTINGS = OTHER_SETTINGS | LIST_SERDE_SETTINGS | frozenset(CONNECTION_SETTINGS)
#: Prefixes of settings that are passed on unchecked.
_PASS_THROUGH_PREFIXES = (
    "admin.", "consumer.", "global.consumer.", "log.", "main.consumer.", "producer.",
    "restore.consumer.", "sasl.", "spark.", "ssl.", "topic.",
)
#: The similarity (1 means equal) from which an unknown name is reported as a misspelling.
_MIN_SIMILARITY = 0.85

_INTEGERS = frozenset((
    "num_stream_threads", "buffered_records_per_partition", "statestore_cache_max_bytes",
    "num_standby_replicas", "acceptable_recovery_lag", "replication_factor",
))

BOOLEANS = frozenset((
    "ensure_explicit_internal_resource_naming", "processing_exception_handler_global_enabled",
))

#: Serdes by the lower-case part of Kafka's class name between `Serdes$` and `Serde`.
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
#: A key ends at the first `=`, `:` or space that is not escaped.
_KEY_AND_VALUE = re.compile(
    r"(?P<key>(?:\\.|[^\\=:\s])*)(?:\s*[=:]\s*|\s+|$)(?P<value>.*)", re.DOTALL
)


def parse_settings(
    properties: Mapping[str, Any], known: set[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the known settings with parsed values, and all other properties.

    Names may also be field names of `StreamsConfig`. A name that resembles a known one raises.
    """
    settings: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name in sorted(properties, key=lambda name: name not in _DEPRECATED_NAMES):
        value = properties[name]
        setting = _SETTING_OF.get(name, name.replace(".", "_"))
        if name == "bootstrap.servers":
            servers = value if isinstance(value, str) else ",".join(value)
            settings.setdefault("log", f"kafka://{servers}")
            extra[name] = value
        elif setting in known and setting != "extra":
            settings[setting] = (
                _list_serde(name, properties) if _is_list_serde(setting, value)
                else _parse_value(name, setting, value)
            )
        else:
            _check_spelling(name, known)
            extra[name] = value
    if "log" in properties:
        settings["log"] = properties["log"]
    return settings, extra


def _check_spelling(name: str, known: set[str]) -> None:
    """Raise if a name is probably a misspelling of a known one."""
    normalized = name.lower().replace("_", ".")
    if name in _OTHER_SETTINGS | NO_EFFECT.keys() or name.startswith(_PASS_THROUGH_PREFIXES):
        return
    names = {PROPERTY_OF.get(setting, setting.replace("_", ".")) for setting in known}
    candidates = sorted(each for each in names | _OTHER_SETTINGS if "." in each)
    near = difflib.get_close_matches(normalized, candidates, 1, _MIN_SIMILARITY)
    # A known name with a prefix or suffix is not a misspelling: 'my.client.id'.
    if not near or normalized.endswith(f".{near[0]}") or normalized.startswith(f"{near[0]}."):
        return
    raise ConfigException(
        f"Setting '{name}' does not exist. Did you mean '{near[0]}'? "
        "For a setting of your own, choose a name that differs more from Kafka's."
    )


def _parse_value(name: str, setting: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if setting in _INTEGERS or setting.endswith("_ms"):
        try:
            return int(text)
        except ValueError:
            raise ConfigException(f"{name} must be an integer, not '{value}'.") from None
    if setting in BOOLEANS:
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
    short = _short_name(text)
    serde = _SERDES.get(short) or _SERDES.get(short.removesuffix("serde"))
    if serde is None:
        raise ConfigException(
            f"{name}: serde '{text}' does not exist. Serdes: {', '.join(_SERDES)}. "
            "For another serde, set an object in Python."
        )
    return serde


def _is_list_serde(setting: str, value: Any) -> bool:
    is_serde = setting in {"default_key_serde", "default_value_serde"}
    return is_serde and isinstance(value, str) and _short_name(value) in {"list", "listserde"}


def _list_serde(name: str, properties: Mapping[str, Any]) -> Serde[Any]:
    """Return the default serde of lists; `default.list.key.serde.inner` is that of the elements."""
    inner_name = f"default.list.{'key' if 'key' in name else 'value'}.serde.inner"
    inner = properties.get(inner_name)
    if inner is None:
        raise ConfigException(f"{name} is a list, but {inner_name} is not set. Set it, too.")
    return Serdes.list(_serde(inner_name, inner) if isinstance(inner, str) else inner)


def _short_name(text: str) -> str:
    return re.split(r"[.$]", text.strip())[-1].lower()


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a Java `.properties` file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigException(
            f"The properties file '{os.fspath(path)}' cannot be read: {error.strerror}."
        ) from error
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    """Parse Java's properties format; the last value of a name wins."""
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
            entries[_unescape(match["key"])] = _unescape(match["value"])
        logical = ""
    return entries


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        return _ESCAPES.get(code, code)

    return _ESCAPED.sub(character, text)
