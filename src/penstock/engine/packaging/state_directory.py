"""Resolves a relative `state_dir` on the hosts of a cluster."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from penstock.errors import ProcessorStateException


def resolve_on_host(state_dir: str) -> Path:
    """Return the directory for a relative `state_dir` on this host.

    It is in the temporary directory of the host, in a folder of the user. The working directory of
    an executor would not do: it belongs to one executor and is deleted with it.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    base = Path(tempfile.gettempdir()) / f"penstock-{user}"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid") and base.stat().st_uid != user:
        raise ProcessorStateException(
            f"The state directory '{base}' belongs to another user. Set state.dir to an absolute "
            "path on a local disk of the executors."
        )
    return base / state_dir
