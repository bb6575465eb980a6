"""Starts a PostgreSQL server for the tests, or installs Debian's package.

    python tests/examples/postgresql.py

The server belongs to the test: its data is in a temporary directory, and it listens on a free port
of the loopback address. PostgreSQL refuses to run as root, so it runs as another user then.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Debian's package, then other places.
FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin")
TIMEOUT_S = 60


def find() -> Path | None:
    """Return the folder with the server's programs, those of the newest version."""
    found = [
        path.parent
        for pattern in FOLDERS for path in Path("/").glob(f"{pattern.lstrip('/')}/initdb")
    ]
    on_path = shutil.which("initdb")
    if on_path is not None:
        found.append(Path(on_path).resolve().parent)
    return max(found, key=_version, default=None)


def _version(folder: Path) -> list[int]:
    return [int(part) for part in folder.parent.name.split(".") if part.isdigit()]


@contextmanager
def server() -> Iterator[str]:
    """A running server. Yields the address of its database, with the password."""
    programs = find()
    assert programs is not None
    user = _other_user() if os.geteuid() == 0 else None
    # Not below pytest's directory, which only its owner may enter.
    with tempfile.TemporaryDirectory(prefix="penstock-postgresql-") as name:
        folder = Path(name)
        password = folder / "password"
        password.write_text(secrets.token_hex(), encoding="ascii")
        if user is not None:
            for path in (folder, password):
                os.chown(path, user.pw_uid, user.pw_gid)
        data = folder / "data"
        initdb = [
            programs / "initdb", "--pgdata", data, "--username", "penstock", "--encoding", "UTF8",
            "--locale", "C", "--auth", "scram-sha-256", "--pwfile", password, "--no-sync",
        ]
        subprocess.run(
            initdb, check=True, stdout=subprocess.DEVNULL, timeout=TIMEOUT_S, **_as(user)
        )
        port = _free_port()
        # No socket file, and no fsync: the data does not outlive the server.
        settings = {
            "listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "",
            "fsync": "off",
        }
        options = [word for item in settings.items() for word in ("-c", "{}={}".format(*item))]
        with (folder / "server.log").open("wb") as log:
            process = subprocess.Popen(
                [programs / "postgres", "-D", data, *options], stdout=log, stderr=log, **_as(user)
            )
        address = f"postgresql://penstock:{password.read_text('ascii')}@127.0.0.1:{port}/postgres"
        try:
            _wait_until_ready(process, address, folder / "server.log")
            yield address
        finally:
            # A fast shutdown: open connections are closed.
            process.send_signal(signal.SIGINT)
            try:
                process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _other_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError("PostgreSQL refuses to run as root, and no other user exists.")


def _as(user: pwd.struct_passwd | None) -> dict[str, object]:
    """Arguments of subprocess for a process of this user, in a folder that it may enter."""
    if user is None:
        return {"cwd": "/"}
    return {"cwd": "/", "user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    import psycopg

    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            psycopg.connect(address, connect_timeout=5).close()
            return
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                lines = log.read_text("utf-8", "replace")
                raise AssertionError(f"PostgreSQL has not started: {lines}") from error
        time.sleep(0.05)


if __name__ == "__main__":
    if find() is None:
        sys.path.insert(0, str(Path(__file__).parents[1]))
        from debian import install

        install("postgresql", "PostgreSQL", "the tests with it")
    print(f"PostgreSQL: {find() or 'none'}")
