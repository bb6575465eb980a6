"""`Context`: what the routes of one application share, and the checks of their parameters."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.errors import SerializationException
from penstock.queries.http.cursors import Cursors
from penstock.queries.http.events import ChangeFeed
from penstock.queries.http.json_values import parse_key
from penstock.queries.http.pages import MAX_TIME_MS, TimeBounds
from penstock.queries.http.problems import Problem
from penstock.queries.http_settings import HttpSettings
from penstock.queries.state_reader import ServedStore, StateReader
from penstock.suggestions import did_you_mean

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MS = re.compile(r"\d{1,19}")
#: Kind of store -> the last part of the path that reads it.
_PATH_OF_KIND = {
    "key-value": "entries", "window": "windows", "session": "sessions", "versioned": "versions"
}


class Context:
    """The reader, the settings and the cursors of an application.

    Args:
        reader: Reads the state.
        settings: The limits.
    """

    def __init__(self, reader: StateReader, settings: HttpSettings) -> None:
        self.reader = reader
        self.settings = settings
        self.cursors = Cursors(settings.token or reader.config.application_id)
        #: Store -> the feed of its changes. Only the event loop uses it.
        self.feeds: dict[str, ChangeFeed] = {}
        #: The number of open streams of changes. Only the event loop uses it.
        self.open_streams = 0

    def store(self, name: str, *kinds: str) -> ServedStore:
        """Return a store; 404 if it does not exist, 400 if it is not of one of the kinds."""
        stores = self.reader.stores()
        found = stores.get(name)
        if found is None:
            listed = ", ".join(f"'{each}'" for each in sorted(stores)) or "none"
            raise Problem(
                404, f"No store '{_short(name)}'.{did_you_mean(name, stores)} Stores: {listed}.",
                stores=sorted(stores),
            )
        if kinds and found.kind not in kinds:
            raise Problem(
                400, f"Store '{name}' is a {found.kind} store. Use "
                f"/stores/{name}/{_PATH_OF_KIND[found.kind]}.", kind=found.kind,
            )
        return found

    def key(self, store: ServedStore, text: str, encoding: str = "text") -> Any:
        """Return the key that a parameter stands for; 400 if the store cannot have it."""
        return self.checked_key(store, parse_key(text, encoding, store.key_serde))

    def checked_key(self, store: ServedStore, key: Any) -> Any:
        """Return the key; 400 if it cannot be serialized."""
        try:
            if key is None:
                raise TypeError("a key must not be null")
            store.key_serde.serialize(key)
        except (TypeError, ValueError, OverflowError, SerializationException) as error:
            raise Problem(
                400, f"The key is not a key of store '{store.name}', whose keys have the type "
                f"{store.key_serde.name}: {_short(str(error), 500)}"
            ) from error
        return key

    def page_size(self, limit: int | None) -> int:
        """Return the size of a page; 400 if it is too large."""
        settings = self.settings
        if limit is None:
            return settings.page_size
        if not 1 <= limit <= settings.max_page_size:
            raise Problem(
                400, f"limit must be between 1 and {settings.max_page_size}, not {limit}."
            )
        return limit


def time_bounds(time_from: str | None, time_to: str | None, order: str) -> TimeBounds:
    """Return the bounds of a range of time."""
    low = 0 if time_from is None else parse_time(time_from, "from")
    high = MAX_TIME_MS if time_to is None else parse_time(time_to, "to")
    if low > high:
        raise Problem(400, f"from ({low}) must not be after to ({high}).")
    return TimeBounds(low, high, order == "desc")


def parse_time(text: str, name: str) -> int:
    """Return a time in epoch milliseconds, from milliseconds or ISO 8601 (UTC if no offset)."""
    if _MS.fullmatch(text):
        return min(int(text), MAX_TIME_MS)
    try:
        # A '+' in a query string stands for a space.
        moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
    except ValueError:
        raise Problem(
            400, f"{name} is not a time. Use 2026-01-31T12:00:00Z or epoch milliseconds."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, (moment - _EPOCH) // _MILLISECOND)


def _short(text: str, limit: int = 100) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."
