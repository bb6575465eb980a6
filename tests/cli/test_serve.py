"""`penstock serve` and `penstock run --serve`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Penstock
from penstock.log import Log
from penstock.queries.http_settings import HttpSettings

Command = Callable[..., subprocess.Popen[bytes]]

APP = """
from penstock import StreamsBuilder

builder = StreamsBuilder()
builder.stream("words", key=str, value=str).group_by_key().count(store="counts")
config = {"application.id": "words"}
"""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "served.py"
    file.write_text(APP, encoding="utf-8")
    yield file
    sys.modules.pop("served", None)


def url_of(process: subprocess.Popen[bytes]) -> str:
    """Return the address that the command prints."""
    assert process.stderr is not None
    for line in process.stderr:
        if b"http://" in line:
            return next(word for word in line.decode().split() if "http://" in word).rstrip(".")
    raise AssertionError("the command has ended")


def get(url: str, token: str = "") -> Any:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143


@pytest.mark.slow
def test_query_node_is_served_until_it_is_stopped(
    penstock: Penstock, command: Command, app: Path, log: Log, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    ran = penstock(
        "run", app, "--once", "--master", "inline", "--quiet", "--state-dir", state
    )
    assert ran.code == 0, ran.err
    node = command("serve", app, "--port", 0, "--state-dir", tmp_path / "node")
    url = url_of(node)
    assert url.startswith("http://127.0.0.1:")
    until_ready(url)
    assert get(f"{url}/stores/counts/keys/c")["value"] == 1
    stop(node)


def until_ready(url: str) -> None:
    from engine.instances import until

    def is_ready() -> bool:
        try:
            return bool(get(f"{url}/ready")["ready"])
        except urllib.error.HTTPError as error:
            error.close()
            return False

    until(is_ready)


@pytest.mark.slow
@pytest.mark.usefixtures("log")
def test_running_instance_is_served(command: Command, app: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n", encoding="utf-8")
    running = command(
        "run", app, "--master", "inline", "--state-dir", tmp_path / "state", "--serve",
        "127.0.0.1:0", "--token-file", token,
    )
    url = url_of(running)
    until_ready(url)
    assert get(f"{url}/stores/counts/keys/a", "s3cret")["value"] == 1
    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        get(f"{url}/stores/counts/keys/a", "wrong")
    refused.value.close()
    stop(running)


@pytest.mark.slow
@pytest.mark.usefixtures("log")
def test_dashboard_of_an_instance_and_of_a_query_node(
    command: Command, app: Path, tmp_path: Path
) -> None:
    running = command(
        "run", app, "--master", "inline", "--state-dir", tmp_path / "state", "--dashboard", "0",
    )
    node = command("dashboard", app, "--port", 0, "--state-dir", tmp_path / "node")
    for process in (running, node):
        page = url_of(process)
        assert page.endswith("/dashboard")
        until_ready(page.removesuffix("/dashboard"))
        assert get(f"{page}/overview")["application"] == "words"
        with urllib.request.urlopen(page, timeout=60) as answer:
            assert b"<title>penstock</title>" in answer.read()
    for process in (running, node):
        stop(process)


@pytest.mark.usefixtures("log")
def test_actions_without_a_dashboard_are_refused(penstock: Penstock, app: Path) -> None:
    result = penstock("run", app, "--serve", "0", "--allow-actions")
    assert result.code == 2
    assert "Add --dashboard 8080." in result.err


@pytest.mark.usefixtures("log")
def test_dashboard_includes_the_server(penstock: Penstock, app: Path) -> None:
    ran = penstock("run", app, "--serve", "1", "--dashboard", "2")
    assert (ran.code, "--serve and --dashboard cannot be combined" in ran.err) == (2, True)


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("arguments", [
    ("serve", "--host", "0.0.0.0"), ("run", "--serve", "0.0.0.0:8080"),
    ("dashboard", "--host", "0.0.0.0"), ("run", "--dashboard", "0.0.0.0:8080"),
    ("run", "--metrics", "0.0.0.0:9404"),
])
def test_public_address_without_a_token_is_refused(
    penstock: Penstock, app: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)
    name, *options = arguments
    ran = penstock(name, app, *options)
    assert (ran.code, ran.out) == (1, "")
    assert "'0.0.0.0' can be reached from other machines, and no token is given." in ran.err
    assert "--token-file" in ran.err


@pytest.mark.usefixtures("log")
def test_wrong_options_are_refused(penstock: Penstock, app: Path, tmp_path: Path) -> None:
    ran = penstock("serve", app, "--token-file", tmp_path / "nothing")
    assert ran.code == 1
    assert "cannot be read" in ran.err
    empty = tmp_path / "empty"
    empty.write_text("\n", encoding="utf-8")
    assert "is empty" in penstock("serve", app, "--token-file", empty).err
    for address in ("here", "1.2.3.4", "127.0.0.1:99999", ":"):
        ran = penstock("run", app, "--serve", address)
        assert (ran.code, "is not an address" in ran.err) == (2, True)
    assert penstock("serve", app, "--port", 99_999).code == 1


@pytest.mark.usefixtures("log")
def test_missing_packages_are_named(
    penstock: Penstock, app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith("penstock.queries.http")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    ran = penstock("serve", app)
    assert ran.code == 1
    assert "pip install 'penstock[web]'" in ran.err


def test_address_and_port_of_the_settings() -> None:
    from penstock.cli.serve_options import Address, http_address

    assert http_address("8080") == Address("127.0.0.1", 8080)
    assert http_address("0.0.0.0:80") == Address("0.0.0.0", 80)
    assert http_address("[::1]:80") == Address("::1", 80)
    assert HttpSettings(host="::1").host == "::1"


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_server_on_all_addresses_is_announced_with_one_that_others_reach(host: str) -> None:
    from penstock.cli.serve_options import Address, announced_address

    found = announced_address(Address(host, 8080))
    assert found.host not in {"0.0.0.0", "::", ""}
    assert found.port == 8080


def test_machine_without_a_route_is_announced_with_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import socket

    from penstock.cli.serve_options import Address, announced_address

    def unreachable(*arguments: object) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", unreachable)
    monkeypatch.setattr(socket, "getfqdn", lambda: "one.example")
    assert announced_address(Address("0.0.0.0", 80)) == Address("one.example", 80)
    assert announced_address(Address("10.0.0.7", 80)) == Address("10.0.0.7", 80)


@pytest.mark.usefixtures("log")
def test_run_announces_the_address_for_others(
    penstock: Penstock, app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.cli.commands import run

    announced = []

    def stop(topology: object, config: Any, *rest: object) -> None:
        announced.append(config.application_server)
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "_create_application", stop)
    monkeypatch.setenv("PENSTOCK_TOKEN", "secret")
    options = ("--master", "inline", "--state-dir", tmp_path, "--serve", "0.0.0.0:8080")
    penstock("run", app, *options)
    penstock("run", app, *options, "--set", "application.server=one.example:80")
    assert announced[0].endswith(":8080")
    assert not announced[0].startswith("0.0.0.0")
    assert announced[1] == "one.example:80"


def test_id_instead_of_a_file_gets_a_hint(penstock: Penstock) -> None:
    ran = penstock("serve", "shop-words")
    assert ran.code == 1
    assert "such as app.py, not the id of the application." in ran.err


@pytest.mark.slow
@pytest.mark.usefixtures("log")
def test_metrics_of_a_running_instance_are_served(
    command: Command, app: Path, tmp_path: Path
) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    from engine.instances import until

    running = command(
        "run", app, "--master", "inline", "--state-dir", tmp_path / "state", "--metrics",
        "127.0.0.1:0",
    )
    url = url_of(running)

    def consumed() -> float:
        with urllib.request.urlopen(url, timeout=60) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        return sum(
            sample.value for family in families for sample in family.samples
            if sample.name == "penstock_stream_topic_records_consumed_total"
            and sample.labels["topic"] == "words"
        )

    until(lambda: consumed() == 6)
    stop(running)
