"""Suggestions in error messages: names that resemble a misspelled one, and lists of names."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: The similarity (1 means equal) from which a name is suggested.
_MIN_SIMILARITY = 0.7
#: The number of names that a message lists.
_LISTED = 20
#: Topics that applications and clusters create for themselves.
_INTERNAL_TOPIC = re.compile(
    r".+-(changelog|repartition|tasks|subscription-(registration|response)-topic|SUBSCRIPTION-"
    r"(REGISTRATION|RESPONSE)-\d+-topic)|_.*"
)


def similar_name(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that a misspelled name was probably meant to be."""
    import difflib  # noqa: PLC0415  (only for errors)

    by_lower_case = {each.lower(): each for each in candidates if each != name}
    near = difflib.get_close_matches(name.lower(), sorted(by_lower_case), 1, _MIN_SIMILARITY)
    return by_lower_case[near[0]] if near else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return the question after a name that does not exist, with a space before it, or ""."""
    near = similar_name(name, candidates)
    return "" if near is None else f" Did you mean '{near}'?"


def user_topics_first(topics: Iterable[str]) -> list[str]:
    """Sort topics by name, those with the names of internal topics last."""
    return sorted(topics, key=lambda name: (bool(_INTERNAL_TOPIC.fullmatch(name)), name))


def listed(names: Iterable[str]) -> str:
    """Return names for a message, the first ones if there are many; "none" if there are none."""
    quoted = [f"'{name}'" for name in names]
    more = ["..."] if quoted[_LISTED:] else []
    return ", ".join(quoted[:_LISTED] + more) or "none"
