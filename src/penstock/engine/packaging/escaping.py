"""Texts of users on their way out of a process. They may hold what no encoding takes: the name of a
file that is no UTF-8 has lone surrogates in it (Python's `surrogateescape`)."""

from __future__ import annotations


def escape_surrogates(text: str) -> str:
    """The text, with an escape for everything that UTF-8 cannot write."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
