"""Hosts of a cluster on this machine: Linux namespaces that a network of their own connects.

A host has its own processes, network, host name, and a private directory, which all hosts see under
the same path. The network is in a namespace, too, so that of the machine does not change. A host
exists as long as its first process, which ends when this program ends, however it ends. The kernel
then kills the other processes of the host and removes its network.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

#: The network of the hosts. Only they can reach it.
_PREFIX = "10.77.0."
_BRIDGE = "switch"
_libc = ctypes.CDLL(None, use_errno=True)
#: CLONE_NEWNET of Linux.
_NEW_NETWORK = 0x40000000
_TOOLS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}


def why_not() -> str | None:
    """Return why hosts cannot be created here; None if they can."""
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            return f"the program '{tool}' is missing: install the package {package}"
    if os.geteuid() != 0:
        return "namespaces of hosts need root"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--mount-proc",
         "ip", "link", "add", _BRIDGE, "type", "bridge"],
        capture_output=True, text=True, check=False,
    )
    return f"namespaces are not permitted: {tried.stderr.strip()}" if tried.returncode else None


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "The network of a host cannot be entered.")


class _Namespaces:
    """Namespaces that exist as long as their first process, which ends with this program."""

    def __init__(self, name: str, script: str, *kinds: str) -> None:
        """`script` prepares the namespaces. `kinds`: more of them than the network."""
        self._process = subprocess.Popen(
            ["unshare", "--net", "--fork", "--kill-child", *kinds,
             "sh", "-ec", f"{script}\necho ready\nread -r end"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            self.close()
            raise RuntimeError(f"The namespaces of '{name}' could not be created.")
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        #: The first process, as other namespaces see it.
        self.pid = int(children.read_text().split()[0])

    def run(self, *command: str) -> None:
        """Run a command in the network only."""
        subprocess.run(["nsenter", "--target", str(self.pid), "--net", *command], check=True)

    def close(self) -> None:
        """End all processes in the namespaces."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


class Host:
    """One host."""

    def __init__(self, network: Network, name: str, address: str) -> None:
        self.name = name
        self.address = address
        #: The host sees it as `Network.private`.
        self.directory = network.directory / name
        self.directory.mkdir(exist_ok=True)
        self._namespaces = _Namespaces(name, "\n".join((
            f"hostname {name}",
            f"mount --bind '{self.directory}' '{network.private}'",
            f"mount --bind '{network.names}' /etc/hosts",
            "ip link set lo up",
        )), "--mount", "--uts", "--pid", "--mount-proc")

    @property
    def pid(self) -> int:
        """The first process of the host."""
        return self._namespaces.pid

    @property
    def port(self) -> str:
        """The name of its port at the bridge. The kernel allows 15 characters."""
        return f"port{self.pid}"

    def command(self, *command: str, directory: Path | None = None) -> list[str]:
        """Return the command that runs a program on the host. `directory`: where it runs."""
        return [
            "nsenter", "--target", str(self.pid), "--net", "--mount", "--uts", "--pid", "--",
            "env", f"--chdir={directory or Path.cwd()}", *command,
        ]

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Let this thread, and the threads that it starts meanwhile, use the host's network."""
        with open("/proc/thread-self/ns/net") as ours, open(f"/proc/{self.pid}/ns/net") as its:
            _enter(its.fileno())
            try:
                yield
            finally:
                _enter(ours.fileno())

    def configure(self, address: str) -> None:
        """Set the address of the host."""
        self._namespaces.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
        self._namespaces.run("ip", "link", "set", "eth0", "up")

    def close(self) -> None:
        """Stop the host: all its processes are killed, and its network disappears."""
        self._namespaces.close()


class Network:
    """A bridge, and the hosts that are connected to it."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        """Start a host for each name."""
        self.directory = directory
        #: The private directory of every host, under the same path.
        self.private = directory / "private"
        self.private.mkdir(parents=True)
        self._addresses = {name: f"{_PREFIX}{n}" for n, name in enumerate(names, 1)}
        self.names = directory / "hosts"
        self.names.write_text("127.0.0.1 localhost\n" + "".join(
            f"{address} {name}\n" for name, address in self._addresses.items()
        ))
        self.hosts: dict[str, Host] = {}
        self._switch: _Namespaces | None = None
        try:
            self._switch = _Namespaces("network", "\n".join((
                f"ip link add {_BRIDGE} type bridge", f"ip link set {_BRIDGE} up",
            )))
            for name in names:
                self.start(name)
        except BaseException:
            self.close()
            raise

    def start(self, name: str) -> Host:
        """Start a host, also one that was stopped. It finds the files that it had."""
        assert self._switch is not None
        host = self.hosts[name] = Host(self, name, self._addresses[name])
        self._switch.run(
            "ip", "link", "add", host.port, "type", "veth", "peer", "name", "eth0", "netns",
            str(host.pid),
        )
        self._switch.run("ip", "link", "set", host.port, "master", _BRIDGE, "up")
        host.configure(host.address)
        return host

    def kill(self, name: str) -> None:
        """Kill a host without a sign to others: its connections are not closed."""
        assert self._switch is not None
        host = self.hosts[name]
        self._switch.run("ip", "link", "delete", host.port)
        host.close()

    def close(self) -> None:
        """Stop all hosts and remove the network."""
        with ExitStack() as stack:
            if self._switch is not None:
                stack.callback(self._switch.close)
            for host in self.hosts.values():
                stack.callback(host.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

