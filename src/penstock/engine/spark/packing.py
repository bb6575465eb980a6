"""The application as bytes for Spark's workers."""

from __future__ import annotations

from types import ModuleType

import cloudpickle  # type: ignore[import-untyped]

from penstock.engine.packing import pack


def travels_by_value(module: ModuleType) -> None:
    """The functions and classes of a module are sent to workers whole, as if they stood in
    `__main__`: for a file that was run by its path, which no worker could import by a name."""
    cloudpickle.register_pickle_by_value(module)


__all__ = ["pack", "travels_by_value"]
