"""Installs packages of Debian that some tests use."""

from __future__ import annotations

import os
import shutil
import subprocess


def install(package: str, name: str, tests: str) -> None:
    """Install a package, if this process may. Otherwise print that some tests are skipped.

    `name` is the program for the reader, `tests` those that need it.
    """
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(f"{name} was not found, so {tests} are skipped. "
              f"Install it, for example with: sudo apt-get install {package}")
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", package]):
        done = subprocess.run(
            ["apt-get", "--quiet", "--quiet", *command], env=environment, check=False,
            stdout=subprocess.DEVNULL,
        )
        if done.returncode:
            print(f"apt-get {command[0]} has failed, so {tests} are skipped.")
            return
