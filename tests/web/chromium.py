"""Finds Chromium for the tests of the dashboard, or installs Debian's package.

    python tests/web/chromium.py

Playwright drives it; its own browsers are not downloaded.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find() -> str | None:
    """Return the path of the browser."""
    return next(filter(None, map(shutil.which, NAMES)), None)


if __name__ == "__main__":
    if find() is None:
        sys.path.insert(0, str(Path(__file__).parents[1]))
        from debian import install

        install("chromium", "Chromium", "the tests of the dashboard in the browser")
    print(f"Browser: {find() or 'none'}")
