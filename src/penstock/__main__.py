"""The command line as a module: `python -m penstock`.

`spark-submit` takes a Python file: submit this one, with the arguments of `penstock`.
"""

from __future__ import annotations

import sys

from penstock.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
