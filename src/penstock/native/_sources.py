"""The checksum that ties the extension to its C sources.

`setup.py` runs this file and compiles the checksum into the extension; `penstock.native` compares
it at import. The file therefore imports nothing from penstock.
"""

from __future__ import annotations

import os
import zlib


def sources_checksum(folder: str) -> str | None:
    """The checksum of the C files in a folder; None if it has none, as in an installed wheel."""
    if not os.path.isdir(folder):
        return None
    names = sorted(name for name in os.listdir(folder) if name.endswith((".c", ".h")))
    if not names:
        return None
    # Not a hash of hashlib: that imports OpenSSL, 4 ms at the start of every process.
    checksum, size = 0, 0
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            content = file.read()
        checksum = zlib.crc32(content, zlib.crc32(f"{name} {len(content)}\n".encode(), checksum))
        size += len(content)
    return f"{checksum:08x}-{size}"
