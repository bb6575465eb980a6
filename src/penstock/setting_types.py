"""The types of settings that `StreamsConfig` converts, for type checkers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

Kept = TypeVar("Kept")
Given = TypeVar("Given")


def default_of(value: Any) -> Any:
    """Return the default of a field with one of these types, which is not of that type."""
    return value


if TYPE_CHECKING:

    class Converted(Generic[Kept, Given]):
        """A field that takes one type and holds another one, declared as a descriptor."""

        def __get__(self, instance: object, owner: type | None = None) -> Kept: ...

        def __set__(self, instance: object, value: Given) -> None: ...

    Milliseconds: TypeAlias = Converted[int, int | timedelta]
    OptionalMilliseconds: TypeAlias = Converted[int | None, int | timedelta | None]
    PathName: TypeAlias = Converted[str, str | os.PathLike[str]]
    OptionalPathName: TypeAlias = Converted[str | None, str | os.PathLike[str] | None]
    Names: TypeAlias = Converted[frozenset[str], str | Iterable[str]]
else:
    # The types of arguments, for help() and notebooks.
    Milliseconds = int | timedelta
    OptionalMilliseconds = int | timedelta | None
    PathName = str | os.PathLike
    OptionalPathName = str | os.PathLike | None
    Names = str | Iterable[str]
