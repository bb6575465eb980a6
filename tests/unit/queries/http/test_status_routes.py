"""Health, readiness, topology, metrics, and the description of the interface."""

from __future__ import annotations

import math

import pytest
from fastapi import Depends, FastAPI, HTTPException
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from penstock.engine.lifecycle import State
from penstock.engine.observe.prometheus import exposition
from penstock.errors import InvalidStateStoreException
from penstock.metrics import MetricName
from penstock.queries.http import HttpSettings, create_app, create_router
from unit.queries.http.fakes import FakeReader


def test_health_follows_the_state(client: TestClient, reader: FakeReader) -> None:
    assert client.get("/health").json() == {"status": "UP", "state": "RUNNING"}
    reader.state = State.ERROR
    answer = client.get("/health")
    assert (answer.status_code, answer.json()["status"]) == (503, "DOWN")


def test_readiness_waits_for_restored_stores(client: TestClient, reader: FakeReader) -> None:
    assert client.get("/ready").json() == {"ready": True, "state": "RUNNING", "detail": "Ready."}
    reader.restoring = "Store 'counts' is being restored."
    answer = client.get("/ready")
    assert answer.status_code == 503
    assert answer.json()["detail"] == "Store 'counts' is being restored."


def test_probes_may_use_head(client: TestClient, reader: FakeReader) -> None:
    assert client.head("/health").status_code == client.head("/ready").status_code == 200
    reader.restoring = "Store 'counts' is being restored."
    assert client.head("/ready").status_code == 503
    assert "head" not in client.get("/openapi.json").json()["paths"]["/health"]


def test_topology_as_text_and_as_json(client: TestClient) -> None:
    document = client.get("/topology").json()
    assert document["subtopologies"][0]["nodes"][0]["topics"] == ["orders"]
    for answer in (
        client.get("/topology", params={"format": "text"}),
        client.get("/topology", headers={"Accept": "text/plain"}),
    ):
        assert answer.text.startswith("Topologies:\n   Sub-topology: 0")
        assert answer.headers["content-type"].startswith("text/plain")


def test_instances_and_positions(client: TestClient) -> None:
    one, two = client.get("/instances").json()["instances"]
    assert (one["name"], one["role"], one["stores"]) == ("one, process 1", "active", ["counts"])
    assert (two["name"], two["role"], two["stores"]) == ("two, process 2", "standby", [])
    (store,) = client.get("/positions").json()["stores"]
    assert store["partitions"][0]["lag"] == 2


def test_metrics_are_legal_for_prometheus(client: TestClient) -> None:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {each.name: each for each in text_string_to_metric_families(answer.text)}
    (state,) = families["penstock_stream_state_info"].samples
    assert state.labels == {"client_id": "shop", "value": "RUNNING"}
    (total,) = families["penstock_stream_thread_process"].samples
    assert (total.value, families["penstock_stream_thread_process"].type) == (3.0, "counter")


@pytest.mark.parametrize("text", ['quote"', "back\\slash", "line\nbreak", "ünï"])
def test_labels_are_escaped(text: str) -> None:
    name = MetricName("stream-state-metrics", "9.put rate/ü", (("store id", text),))
    (family,) = text_string_to_metric_families(exposition({name: math.nan}))
    (sample,) = family.samples
    assert sample.labels == {"store_id": text}
    assert math.isnan(sample.value)


def test_infinities_are_written_as_prometheus_does() -> None:
    metrics = {MetricName("a", "b"): math.inf, MetricName("a", "c"): -math.inf}
    found = list(text_string_to_metric_families(exposition(metrics)))
    assert [each.samples[0].value for each in found] == [math.inf, -math.inf]


def test_description_lists_all_paths_and_loads_nothing(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/health", "/stores/{store}/keys/{key}", "/stores/{store}/changes"} <= paths.keys()
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "http://" not in page.text
    assert "https://" not in page.text


def test_unknown_path_and_wrong_parameters_are_problem_documents(client: TestClient) -> None:
    for path, status in (("/nothing", 404), ("/stores/counts/entries?order=up", 422)):
        answer = client.get(path)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status
    assert client.delete("/stores").status_code == 405


def test_unexpected_error_shows_no_details(reader: FakeReader) -> None:
    def broken() -> object:
        raise ZeroDivisionError("secret")

    reader.stores = broken  # type: ignore[assignment, method-assign]
    client = TestClient(create_app(reader), raise_server_exceptions=False)
    answer = client.get("/stores")
    assert (answer.status_code, answer.headers["content-type"]) == (
        500, "application/problem+json"
    )
    assert "secret" not in answer.text


def test_users_mount_it_and_add_routes(reader: FakeReader) -> None:
    app = FastAPI()
    app.mount("/state", create_app(reader))

    @app.get("/total")
    def total() -> int:
        return sum(value.value for _, value in reader.store("counts", 0).all())

    client = TestClient(app)
    assert client.get("/state/stores/counts/keys/a/b").json()["key"] == "a/b"
    assert isinstance(client.get("/total").json(), int)


def test_router_can_be_included(reader: FakeReader) -> None:
    app = FastAPI()
    app.include_router(create_router(reader, HttpSettings()), prefix="/v1")
    assert TestClient(app).get("/v1/stores/counts").json()["name"] == "counts"


@pytest.mark.parametrize(("path", "status"), [
    ("/v1/stores/counts/keys/nobody", 404), ("/v1/stores/count", 404),
    ("/v1/stores/counts/entries?order=up", 422), ("/v1/stores/counts/keys/a?encoding=x", 400),
])
def test_errors_of_an_included_router_are_the_same_documents(
    client: TestClient, reader: FakeReader, path: str, status: int
) -> None:
    app = FastAPI()
    app.include_router(create_router(reader), prefix="/v1")
    answer, expected = TestClient(app).get(path), client.get(path.removeprefix("/v1"))
    assert answer.status_code == expected.status_code == status
    assert answer.headers == expected.headers
    assert answer.content == expected.content


def test_included_router_reports_stores_that_are_not_available(reader: FakeReader) -> None:
    def restoring(name: str, partition: int | None = None) -> object:
        raise InvalidStateStoreException(f"Store '{name}' is being restored.")

    reader.store = restoring  # type: ignore[method-assign]
    app = FastAPI()
    app.include_router(create_router(reader))
    answer = TestClient(app).get("/stores/counts/keys/a")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_own_dependency_of_an_included_router_keeps_its_errors(reader: FakeReader) -> None:
    def refuse() -> None:
        raise HTTPException(401, "Log in first.")

    app = FastAPI()
    app.include_router(create_router(reader), dependencies=[Depends(refuse)])
    answer = TestClient(app).get("/stores/counts")
    assert (answer.status_code, answer.json()) == (401, {"detail": "Log in first."})
