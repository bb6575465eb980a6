"""Notices for users about the host of a worker."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING
from zipimport import zipimporter

import penstock
from penstock import native

if TYPE_CHECKING:
    from penstock.engine.packaging.bundle import Bundle


def native_notices(bundle: Bundle) -> tuple[str, ...]:
    """Return a notice if this worker lacks the native core, because it is on another host than the
    driver, or because an archive cannot contain it."""
    archive = _archive()
    if native.core is not None or not (bundle.is_native or archive):
        return ()
    if archive is None:
        reason = native.in_use()
    else:
        reason = (
            f"it is imported from the archive {archive} (--py-files), and Python cannot load "
            "compiled modules from an archive"
        )
    return (
        f"penstock runs without its native core on host {socket.gethostname()}, and is several "
        f"times slower: {reason}. Install the wheel for the Python of the executors, or ship an "
        "environment with --archives.",
    )


def _archive() -> str | None:
    """The name of the archive that penstock is imported from; None if it is installed.

    The path of the archive may be relative to another directory than the current one.
    """
    loader = penstock.__spec__.loader if penstock.__spec__ is not None else None
    return Path(loader.archive).name if isinstance(loader, zipimporter) else None
