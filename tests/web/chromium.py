"""Finds Chromium for the tests of the dashboard, or installs Debian's package.

    python tests/web/chromium.py

Playwright drives it; its own browsers are not downloaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find() -> str | None:
    """Return the path of the browser."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def install() -> None:
    """Install the package, if this process may."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print("Chromium was not found, so the tests of the dashboard in the browser are skipped. "
              "Install it, for example with: sudo apt-get install chromium")
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["update"], ["install", "--yes", "--no-install-recommends", "chromium"],
    ):
        done = subprocess.run(
            ["apt-get", "--quiet", "--quiet", *command], env=environment, check=False,
            stdout=subprocess.DEVNULL,
        )
        if done.returncode:
            print(f"apt-get {command[0]} has failed, so the tests of the dashboard in the browser "
                  "are skipped.")
            return


if __name__ == "__main__":
    if find() is None:
        install()
    print(f"Browser: {find() or 'none'}")
