"""A writer of the table replication example that kills itself with SIGKILL.

    python tests/examples/killed_writer.py LOG DATABASE after-commit|STATEMENTS|never

It dies between its first commit and its next step, or after it has executed a number of statements
in the database. It ends at the end of the topic if it is still alive.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from table_replication.replica import Replica, open_replica
from table_replication.writer import replicate


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_after(replica: Replica, statements: int) -> None:
    execute, left = replica._execute, itertools.count(statements - 1, -1)

    def counted(statement: str, *values: object) -> Iterable[Any]:
        result = execute(statement, *values)
        if next(left) == 0:
            die()
        return result

    replica._execute = counted


def main(log: str, database: str, kill: str) -> None:
    replica = open_replica(database)
    if kill.isdigit():
        die_after(replica, int(kill))
    for _ in replicate(log, replica, batch_size=4):
        # The transaction of the batch is committed, and nothing has happened since.
        if kill == "after-commit":
            die()


if __name__ == "__main__":
    main(*sys.argv[1:])
