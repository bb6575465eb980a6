"""`settings_of`: the configuration of an application as text, without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.config import StreamsConfig
from penstock.engine.lease import DEFAULT_TIMEOUT_MS

HIDDEN = "(hidden)"
#: A setting whose name contains one of these is a secret.
_SECRET = (
    "password", "passwd", "passphrase", "secret", "token", "jaas", "credential", "username",
    "user.info", "auth",
)
#: The end of a part of a name: `api.key`, `apikey`. Before these words, it means keys of records.
_KEY = re.compile(
    r"keys?([._-](?!serde|serializer|deserializer|converter|subject|schema|format)|$)"
)
_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")
#: The user and the password of a URL. A password may contain any character but a space.
_USER = re.compile(r"(?<=://)\S*@")
#: `name=value`, as in the query of a URL or in a connection string, or `"name": value` of JSON. A
#: value in quotes may contain any character.
_PAIR = re.compile(r"""([\w.-]+)(=|["']\s*:\s*)("[^"]*"|'[^']*'|[^\s&;,]+)""")
#: Settings that are shown with what applies while they are not set.
_DEFAULTS: Mapping[str, str] = {
    "commit.interval.ms": "as soon as possible", "default.key.serde": "none",
    "default.value.serde": "none", "default.timestamp.extractor": "the timestamp of the record",
    "errors.dead.letter.queue.topic.name": "none", "auto.offset.reset": "earliest",
    "session.timeout.ms": str(DEFAULT_TIMEOUT_MS), "processor.wrapper.class": "none",
}


def settings_of(config: StreamsConfig) -> dict[str, str]:
    """Return the settings that apply, sorted by name. Values of secrets are hidden.

    A setting that is not set has its default, marked as such.
    """
    given = config.app_configs()
    mode = "continuous" if config.is_continuous else "batch"
    found = {
        name: f"{value} (default)" for name, value in {"execution": mode, **_DEFAULTS}.items()
        # Also set: `consumer.auto.offset.reset`.
        if not any(each.endswith(f".{name}") for each in given)
    }
    found |= {name: HIDDEN if is_secret(name) else _shown(given[name]) for name in given}
    return dict(sorted(found.items()))


def is_secret(name: str) -> bool:
    """Return whether the name is that of a password, a key, a token or the like."""
    name = _CAMEL_CASE.sub(".", name).lower()
    return any(word in name for word in _SECRET) or _KEY.search(name) is not None


def _shown(value: Any) -> str:
    if isinstance(value, frozenset | set | list | tuple):
        value = ", ".join(sorted(map(str, value))) or "none"
    text = _USER.sub(f"{HIDDEN}@", str(value)) or "(empty)"
    return _PAIR.sub(
        lambda pair: f"{pair[1]}{pair[2]}{HIDDEN}" if is_secret(pair[1]) else pair[0], text
    )
