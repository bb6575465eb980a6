"""The stream processors that `bench/peers.py` measures: how they are installed, started, stopped.

Each has a program in `bench/peers/` and, but for penstock, a virtualenv in the cache directory of
penstock, `peers/`, which is created when it is needed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.broker import jars, ports
from penstock.broker.errors import BrokerError
from penstock.broker.repository import repository_url

PROGRAMS = Path(__file__).parent / "peers"
_INSTALL_TIMEOUT_S = 900
_STOP_TIMEOUT_S = 20


class PeerFailed(Exception):
    """A peer cannot be installed, or its program ended."""


@dataclass(frozen=True)
class Peer:
    """A stream processor with one processing guarantee."""

    name: str
    guarantee: str
    #: The Python interpreter and the directory of the run -> the command of each process.
    commands: Callable[[str, Path], list[list[str]]]
    #: The requirement for pip; empty for the virtualenv of this process.
    package: str = ""
    #: How many members share the partitions, if they do it in a consumer group.
    members: int = 0
    #: Decodes the value of an output of W2; None for the retraction of a count.
    read_count: Callable[[bytes], int | None] = int

    @property
    def title(self) -> str:
        return f"{self.versioned_name}, {self.guarantee}"

    @property
    def versioned_name(self) -> str:
        """The name with the first two numbers of the version."""
        version = self.package.partition("==")[2]
        return f"{self.name} {version.rpartition('.')[0]}" if version else self.name

    def install(self) -> str:
        """Return the interpreter of the peer's virtualenv, which is created if it is missing."""
        if not self.package:
            return sys.executable
        folder = peers_directory() / self.package
        python, complete = folder / "bin" / "python", folder / "complete"
        if not complete.exists():
            print(f"installing {self.package} in {folder}", flush=True)
            _run([sys.executable, "-m", "venv", "--clear", str(folder)])
            _run([str(python), "-m", "pip", "install", "--quiet", self.package])
            complete.touch()
        return str(python)


def peers_directory() -> Path:
    """Return the directory of the virtualenvs, beside Kafka's jars in the cache of penstock."""
    return jars.cache_directory().parent / "peers"


def _run(command: list[str]) -> None:
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_INSTALL_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise PeerFailed(f"{command[-1]} was not installed in {_INSTALL_TIMEOUT_S} s") from error
    if ran.returncode:
        raise PeerFailed(f"{command[-1]} cannot be installed: {_last_line(ran.stderr)}")


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


# ---- the peers -------------------------------------------------------------------------------


def _penstock(execution: str) -> Callable[[str, Path], list[list[str]]]:
    return lambda python, folder: [[
        python, "-m", "penstock", "run", "--quiet", "--master", "local[2]",
        "--execution", execution, f"{PROGRAMS / 'penstock_app.py'}:topology",
    ]]


def _quix(python: str, folder: Path) -> list[list[str]]:
    return [[python, str(PROGRAMS / "quix_app.py")]] * 2


def _faust(python: str, folder: Path) -> list[list[str]]:
    return [
        [python, "-m", "faust", "--datadir", str(folder / f"faust-{n}"), "-A", "faust_app",
         "worker", "--loglevel", "warn", "--without-web"]
        for n in range(2)
    ]


def _bytewax(python: str, folder: Path) -> list[list[str]]:
    recovery = folder / "recovery"
    recovery.mkdir()
    _run([python, "-m", "bytewax.recovery", str(recovery), "2"])
    addresses = ";".join(f"127.0.0.1:{port}" for port in ports.free_ports(2))
    return [
        [python, "-m", "bytewax.run", "bytewax_app:flow", "--recovery-directory", str(recovery),
         "--snapshot-interval", "10", "--backup-interval", "0", "--process-id", str(n),
         "--addresses", addresses]
        for n in range(2)
    ]


def _pathway(python: str, folder: Path) -> list[list[str]]:
    # The processes use adjacent ports.
    first = next(port for port in ports.free_ports(20) if ports.is_free(port + 1))
    return [[
        str(Path(python).with_name("pathway")), "spawn", "--processes", "2",
        "--first-port", str(first), python, str(PROGRAMS / "pathway_app.py"),
    ]]


def _flink(python: str, folder: Path) -> list[list[str]]:
    try:
        directory = _FLINK_JARS.directory if _FLINK_JARS.is_fetched else jars.fetch(_FLINK_JARS)
    except BrokerError as error:
        raise PeerFailed(str(error)) from error
    return [[python, str(PROGRAMS / "flink_app.py"), *map(str, directory.glob("*.jar"))]]


def _spark(python: str, folder: Path) -> list[list[str]]:
    return [[python, str(PROGRAMS / "spark_app.py")]]


def _kafka_long(value: bytes) -> int:
    return int.from_bytes(value, "big")


def _pathway_count(value: bytes) -> int | None:
    """Pathway retracts the count of a key before it writes the next one."""
    update = json.loads(value)
    return update["value"] if update["diff"] > 0 else None


EXACTLY_ONCE, AT_LEAST_ONCE = "exactly once", "at least once"
_QUIX = "quixstreams==3.28.1"
_FLINK = "apache-flink==2.3.0"
# The newest version. It is for Flink 2.2; there is none for 2.3.
_FLINK_JARS = jars.JarSet("The Kafka connector of Flink", "flink", """
    <dependency org="org.apache.flink" name="flink-sql-connector-kafka" rev="5.0.0-2.2"
                conf="default->default" transitive="false"/>
""", "flink-sql-connector-kafka-", 1, 10)
PEERS = {
    "penstock": Peer(
        "penstock, continuous mode", EXACTLY_ONCE, _penstock("continuous"), read_count=_kafka_long
    ),
    "penstock-batch": Peer(
        "penstock, batch mode", EXACTLY_ONCE, _penstock("batch"), read_count=_kafka_long
    ),
    "quix": Peer("Quix Streams", EXACTLY_ONCE, _quix, _QUIX, members=2),
    "quix-at-least-once": Peer("Quix Streams", AT_LEAST_ONCE, _quix, _QUIX, members=2),
    "bytewax": Peer("Bytewax", AT_LEAST_ONCE, _bytewax, "bytewax[kafka]==0.21.1"),
    "faust": Peer("Faust", AT_LEAST_ONCE, _faust, "faust-streaming==0.15.3", members=2),
    "pathway": Peer(
        "Pathway", AT_LEAST_ONCE, _pathway, "pathway==0.33.0", members=2,
        read_count=_pathway_count,
    ),
    "pyflink": Peer("PyFlink", EXACTLY_ONCE, _flink, _FLINK),
    "pyflink-at-least-once": Peer("PyFlink", AT_LEAST_ONCE, _flink, _FLINK),
    # The newest version for which Maven Central has the Kafka connector and all that it needs.
    "spark": Peer("Structured Streaming, Spark", AT_LEAST_ONCE, _spark, "pyspark==4.0.0"),
}


# ---- running programs ------------------------------------------------------------------------


@dataclass
class Program:
    """The processes of a running application, each in a session of its own."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def check(self) -> None:
        """Raise `PeerFailed` if a process has ended."""
        for number, process in enumerate(self.processes):
            if process.poll() is not None:
                raise PeerFailed(
                    f"ended with exit code {process.returncode}: {_last_line(self._log(number))}"
                )

    def print_logs(self) -> None:
        """Print the ends of the logs, for a peer that failed."""
        for number in range(len(self.processes)):
            print(self._log(number)[-5_000:], file=sys.stderr)

    def _log(self, number: int) -> str:
        return _log_file(self.folder, number).read_text(errors="replace")

    def suspend(self) -> None:
        """Stop all processes until `resume`, those that they started included."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """End all processes, and kill those that do not end."""
        self.resume()
        for process in self.processes:
            process.terminate()
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0, deadline - time.monotonic()))
        self._signal(signal.SIGKILL)
        for process in self.processes:
            process.wait()

    def _signal(self, number: signal.Signals) -> None:
        sessions = {process.pid for process in self.processes}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                # The fields after the name, which may contain spaces: state, parent, group, session
                if int(path.read_text().rpartition(")")[2].split()[3]) in sessions:
                    os.kill(int(path.parent.name), number)


@contextlib.contextmanager
def running(peer: Peer, folder: Path, **settings: str) -> Iterator[Program]:
    """Start the processes of a peer. They find the settings in the environment, as `PEER_NAME`."""
    commands = peer.commands(peer.install(), folder)
    program = Program(folder)
    try:
        for number, command in enumerate(commands):
            state = folder / f"state-{number}"
            state.mkdir()
            known = {
                **settings, "guarantee": peer.guarantee, "folder": str(state),
                "ivy": str(peers_directory() / "ivy"), "maven_repository": repository_url(),
            }
            with _log_file(folder, number).open("wb") as log:
                program.processes.append(subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=PROGRAMS,
                    start_new_session=True,
                    env=os.environ | {f"PEER_{name.upper()}": text for name, text in known.items()},
                ))
        yield program
    except PeerFailed:
        program.print_logs()
        raise
    finally:
        program.end()


def _log_file(folder: Path, number: int) -> Path:
    return folder / f"process-{number}.log"
