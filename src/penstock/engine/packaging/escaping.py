"""Escapes text of user code that UTF-8 cannot represent.

A file name that is not UTF-8 contains lone surrogates in Python (`surrogateescape`).
"""

from __future__ import annotations


def escape_surrogates(text: str) -> str:
    """Return the text with a backslash escape for each character that UTF-8 cannot encode."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
