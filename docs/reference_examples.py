"""Shows the examples of docstrings as code in the API reference. mkdocstrings loads this.

griffe reads the section `Examples:` as doctests, but `Example:`, which is Google's name for one
example, as text.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class CodeExamples(griffe.Extension):
    """Renames the section before griffe reads it."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object. griffe calls this."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE
            )
