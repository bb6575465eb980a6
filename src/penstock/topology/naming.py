"""Names of processors and stores: Kafka's prefixes and its single counter (F1)."""

from __future__ import annotations

import re

from penstock.errors import TopologyException

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_MAX_LENGTH = 249


def check_name(name: str) -> str:
    """Return a name of the user; raise if it cannot be part of a topic name."""
    if not isinstance(name, str):
        raise TypeError(f"A name must be a string, not {type(name).__name__}: {name!r}.")
    if not name:
        raise TopologyException("A name must not be empty. Leave out name= for a generated name.")
    if name in (".", ".."):
        raise TopologyException(f"A name must not be {name!r}.")
    if len(name) > _MAX_LENGTH:
        raise TopologyException(
            f"A name can have at most {_MAX_LENGTH} characters, but this one has {len(name)}: "
            f"{name!r}."
        )
    if not _LEGAL.fullmatch(name):
        raise TopologyException(
            f"The name {name!r} has an illegal character. "
            "Use ASCII letters, digits, '.', '_' and '-'."
        )
    return name


class NameCounter:
    """Generates numbered names. A step consumes its numbers even if the user names it."""

    def __init__(self) -> None:
        self._next = 0

    def next_processor_name(self, prefix: str) -> str:
        """Return the next processor name with this prefix."""
        number = self._next
        self._next += 1
        return f"{prefix}{number:010d}"

    def next_store_name(self, prefix: str) -> str:
        """Return the next store name with this prefix."""
        return self.next_processor_name(prefix + "STATE-STORE-")

    def given_or_next(self, name: str | None, prefix: str) -> str:
        """Return the user's name or a generated one; both consume a number."""
        generated = self.next_processor_name(prefix)
        return generated if name is None else check_name(name)

    def suffixed_or_next(self, name: str | None, suffix: str, prefix: str) -> str:
        """Return the user's name with a suffix, or a generated one; both consume a number."""
        generated = self.next_processor_name(prefix)
        return generated if name is None else check_name(check_name(name) + suffix)
