"""Names of processors and stores: Kafka's prefixes and its one counter (F1)."""

from __future__ import annotations

import re

from penstock.errors import TopologyException

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_MAX_LENGTH = 249


def check_name(name: str) -> str:
    """A name that the user gave: legal as part of a topic name, or a clear error."""
    if not isinstance(name, str):
        raise TypeError(f"A name must be a text, not {type(name).__name__}: {name!r}.")
    if not name:
        raise TopologyException("A name must not be empty. Leave name= out to get a generated one.")
    if name in (".", ".."):
        raise TopologyException(f"A name must not be {name!r}.")
    if len(name) > _MAX_LENGTH:
        raise TopologyException(
            f"A name must have at most {_MAX_LENGTH} characters, this one has {len(name)}: "
            f"{name!r}."
        )
    if not _LEGAL.fullmatch(name):
        raise TopologyException(
            f"The name {name!r} has an illegal character. "
            "Names are made of ASCII letters, digits, '.', '_' and '-'."
        )
    return name


class NameCounter:
    """Hands out numbered names. Every operator takes its numbers, also when the user names it."""

    def __init__(self) -> None:
        self._next = 0

    def next_processor_name(self, prefix: str) -> str:
        """The next processor name with this prefix."""
        number = self._next
        self._next += 1
        return f"{prefix}{number:010d}"

    def next_store_name(self, prefix: str) -> str:
        """The next store name with this prefix."""
        return self.next_processor_name(prefix + "STATE-STORE-")

    def given_or_next(self, name: str | None, prefix: str) -> str:
        """The user's name, or a generated one; a number is used up either way."""
        generated = self.next_processor_name(prefix)
        return generated if name is None else check_name(name)

    def suffixed_or_next(self, name: str | None, suffix: str, prefix: str) -> str:
        """The user's name with a suffix, or a generated one; a number is used up either way."""
        generated = self.next_processor_name(prefix)
        return generated if name is None else check_name(check_name(name) + suffix)
