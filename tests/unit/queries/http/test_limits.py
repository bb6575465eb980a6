"""Tokens, sizes and rates."""

from __future__ import annotations

import logging

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from penstock.errors import ConfigException
from penstock.queries.http import HttpSettings, create_app
from penstock.queries.http.limits import RateLimit
from unit.queries.http.fakes import FakeReader

TOKEN = "s3cret-token"


@pytest.fixture
def guarded(reader: FakeReader) -> TestClient:
    return TestClient(create_app(reader, HttpSettings(token=TOKEN)))


@pytest.mark.parametrize("header", [
    None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x",
    f"Bearer {TOKEN[:-1]}", f"{TOKEN}", "Bearer é",
])
def test_wrong_tokens_are_refused(guarded: TestClient, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header.encode()}
    answer = guarded.get("/stores", headers=headers)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert TOKEN not in answer.text


@pytest.mark.parametrize("header", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Bearer   {TOKEN} "])
def test_right_token_is_accepted(guarded: TestClient, header: str) -> None:
    assert guarded.get("/stores", headers={"Authorization": header}).status_code == 200


def test_probes_and_the_description_need_no_token(guarded: TestClient) -> None:
    for path in ("/health", "/ready", "/docs", "/openapi.json"):
        assert guarded.get(path).status_code == 200
    for path in ("/metrics", "/topology", "/health/", "//health"):
        assert guarded.get(path).status_code == 401


def test_token_applies_below_a_mount(reader: FakeReader) -> None:
    app = FastAPI()
    app.mount("/state", create_app(reader, HttpSettings(token=TOKEN)))
    client = TestClient(app)
    assert client.get("/state/health").status_code == 200
    assert client.get("/state/stores").status_code == 401
    answer = client.get("/state/stores", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200


def test_token_is_not_shown(
    guarded: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    guarded.get("/stores", headers={"Authorization": f"Bearer {TOKEN}"})
    guarded.get("/stores", headers={"Authorization": f"Bearer {TOKEN}-wrong"})
    assert TOKEN not in caplog.text
    assert TOKEN not in repr(HttpSettings(token=TOKEN))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.org"])
def test_public_address_needs_a_token(host: str) -> None:
    with pytest.raises(ConfigException, match="no token is given"):
        HttpSettings(host=host)
    assert HttpSettings(host=host, token=TOKEN).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.9.9.9"])
def test_loopback_needs_no_token(host: str) -> None:
    assert HttpSettings(host=host).token is None


@pytest.mark.parametrize(("settings", "message"), [
    ({"token": ""}, "token"), ({"token": "ü"}, "ASCII"), ({"port": 70_000}, "port"),
    ({"page_size": 0}, "page_size"), ({"page_size": 2_000}, "max_page_size"),
    ({"requests_per_second": 0}, "requests_per_second"),
])
def test_invalid_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigException, match=message):
        HttpSettings(**settings)  # type: ignore[arg-type]


def test_large_bodies_and_headers_are_refused(reader: FakeReader) -> None:
    client = TestClient(create_app(reader, HttpSettings(max_body_bytes=1_000)))
    path = "/stores/counts/lookup"
    assert client.post(path, json={"keys": ["k" * 2_000]}).status_code == 413

    def chunks() -> object:
        yield b'{"keys": ["'
        for _ in range(20):
            yield b"k" * 100
        yield b'"]}'

    assert client.post(path, content=chunks()).status_code == 413  # type: ignore[arg-type]
    assert client.get("/stores", headers={"X-Large": "x" * 40_000}).status_code == 431


def test_request_rate_is_limited(reader: FakeReader) -> None:
    client = TestClient(create_app(reader, HttpSettings(requests_per_second=3)))
    responses = [client.get("/health") for _ in range(50)]
    refused = [answer for answer in responses if answer.status_code == 429]
    assert refused
    assert refused[0].headers["retry-after"] == "1"
    assert [answer.status_code for answer in responses[:3]] == [200] * 3


def test_rate_is_counted_for_each_client() -> None:
    now = [0.0]
    limit = RateLimit(None, 2, clock=lambda: now[0])  # type: ignore[arg-type]
    assert [limit.take("a") for _ in range(3)] == [0, 0, 0.5]
    assert limit.take("b") == 0
    now[0] = 0.5
    assert [limit.take("a"), limit.take("a")] == [0, 0.5]


def test_clients_beyond_the_limit_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.queries.http.limits.MAX_CLIENTS", 2)
    limit = RateLimit(None, 1, clock=lambda: 0.0)  # type: ignore[arg-type]
    assert [limit.take(client) for client in ("a", "b", "c")] == [0, 0, 0]
    assert limit.take("a") == 0
    assert limit.take("c") > 0


def test_other_web_sites_may_not_read_responses(reader: FakeReader) -> None:
    origin = {"Origin": "https://shop.example"}
    closed = TestClient(create_app(reader, HttpSettings()))
    assert "access-control-allow-origin" not in closed.get("/stores", headers=origin).headers
    opened = TestClient(create_app(reader, HttpSettings(cors_origins=("https://shop.example",))))
    answer = opened.get("/stores", headers=origin)
    assert answer.headers["access-control-allow-origin"] == "https://shop.example"
