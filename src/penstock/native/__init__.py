"""The hot path in C, if the extensions are built.

`core` is the extension for tasks and stores, or None; `rdkafka` returns the one for Kafka, or None.
Without them penstock runs in pure Python, more slowly and with the same results. Each native
function has a Python twin; callers choose between them once, when a store or a client is opened or
a node is attached. Nothing native is ever pickled. The environment variable PENSTOCK_PURE_PYTHON=1
disables both.

    python -c "from penstock import native; print(native.in_use())"
"""

from __future__ import annotations

import functools
import importlib
import os
from typing import TYPE_CHECKING, cast

from penstock.native._sources import sources_checksum

if TYPE_CHECKING:
    from types import ModuleType

    from penstock.native._core import Core
    from penstock.native._rdkafka import RdKafka


def _extension(name: str = "_core", folder: str = "") -> tuple[ModuleType | None, str]:
    """The extension, or None and the reason."""
    if os.environ.get("PENSTOCK_PURE_PYTHON", "") not in ("", "0"):
        return None, "PENSTOCK_PURE_PYTHON is set"
    try:
        found = importlib.import_module(f"penstock.native.{name}")
    except ImportError as error:
        return None, f"the extension is not built: {error}"
    # An installed wheel has no C sources; in a clone they may be newer than the extension.
    expected = sources_checksum(os.path.join(os.path.dirname(__file__), folder))
    if expected not in (None, getattr(found, "SOURCES", "")):
        return None, "the extension was built from other sources: run `make install`"
    return found, ""


_found, _why_not = _extension()
core = cast("Core | None", _found)


@functools.cache
def rdkafka() -> RdKafka | None:
    """The extension for Kafka, or None. It is imported by the first call."""
    found, _ = _extension("_rdkafka", "rdkafka")
    return cast("RdKafka | None", found)


def in_use() -> str:
    """The implementation in use, and the reason if it is not the extension."""
    return "native" if core is not None else f"pure Python ({_why_not})"
