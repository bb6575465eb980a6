"""Notices for users about the host of a worker."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from penstock import native

if TYPE_CHECKING:
    from penstock.engine.packaging.bundle import Bundle


def native_notices(bundle: Bundle) -> tuple[str, ...]:
    """Return a notice if this worker lacks the native core, because it is on another host than the
    driver, or because an archive cannot contain it."""
    location = penstock.__file__ or ""
    archive = next((path for path in Path(location).parents if path.is_file()), None)
    if native.core is not None or not (bundle.is_native or archive):
        return ()
    if archive is None:
        reason = native.in_use()
    else:
        reason = (
            f"it is imported from the archive {archive.name} (--py-files), and Python cannot load "
            "compiled modules from an archive"
        )
    return (
        f"penstock runs without its native core on host {socket.gethostname()}, and is several "
        f"times slower: {reason}. Install the wheel for the Python of the executors, or ship an "
        "environment with --archives.",
    )
