"""Routes about the application itself: health, topology, positions, instances, metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response

from penstock.engine.observe.prometheus import MEDIA_TYPE, exposition
from penstock.queries.http import models
from penstock.queries.http.context import Context
from penstock.queries.http.json_values import encode
from penstock.queries.state_reader import Host, InstanceInfo, PartitionLag
from penstock.topology.describe import description_as_json


def json_response(
    document: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a document as a line of JSON."""
    return Response(encode(document) + b"\n", status, headers, media_type="application/json")


def add_status_routes(router: APIRouter, context: Context) -> None:
    """Add the routes."""
    reader = context.reader

    # Probes and load balancers may use HEAD.
    @router.head("/health", include_in_schema=False)
    @router.get(
        "/health", tags=["status"], summary="Whether the process works",
        response_model=models.Health, responses={503: {"model": models.Health}},
    )
    async def health() -> Response:
        state = reader.state
        is_up = not (state.has_ended or state.is_shutting_down)
        return json_response(
            {"status": "UP" if is_up else "DOWN", "state": state.value}, 200 if is_up else 503
        )

    @router.head("/ready", include_in_schema=False)
    @router.get(
        "/ready", tags=["status"], summary="Whether all stores are restored",
        response_model=models.Readiness, responses={503: {"model": models.Readiness}},
    )
    async def ready() -> Response:
        reason = await run_in_threadpool(reader.not_ready_reason)
        document = {
            "ready": reason is None, "state": reader.state.value, "detail": reason or "Ready."
        }
        return json_response(document, 200 if reason is None else 503)

    @router.get(
        "/topology", tags=["status"], summary="The topology as JSON or as text",
        response_model=models.TopologyDocument,
        responses={200: {"content": {"text/plain": {}}}},
    )
    async def topology(
        request: Request,
        chosen: Annotated[Literal["json", "text"] | None, Query(alias="format")] = None,
    ) -> Response:
        description = reader.topology.describe()
        accepts_text = request.headers.get("accept", "").startswith("text/plain")
        if chosen == "text" or (chosen is None and accepts_text):
            return PlainTextResponse(str(description))
        return json_response(description_as_json(description))

    @router.get(
        "/positions", tags=["status"], summary="The positions of all stores in their changelogs",
        response_model=models.PositionList,
    )
    async def positions() -> Response:
        lags = await run_in_threadpool(reader.lags)
        return json_response({
            "stores": [positions_document(name, lags[name]) for name in sorted(lags)]
        })

    @router.get(
        "/instances", tags=["status"], summary="The instances of the application",
        response_model=models.InstanceList,
    )
    async def instances() -> Response:
        found = await run_in_threadpool(reader.instances)
        return json_response({"instances": [_instance_document(each) for each in found]})

    @router.get(
        "/metrics", tags=["status"], summary="The metrics in Prometheus' text format",
        response_class=PlainTextResponse,
    )
    async def metrics() -> Response:
        text = exposition(await run_in_threadpool(reader.metrics))
        return Response(text, media_type=MEDIA_TYPE)


def positions_document(store: str, partitions: Any) -> dict[str, Any]:
    """Return the positions of a store."""
    return {
        "store": store,
        "partitions": [
            _position_document(number, partitions[number]) for number in sorted(partitions)
        ],
    }


def _position_document(partition: int, found: PartitionLag) -> dict[str, int]:
    return {
        "partition": partition, "position": found.position, "end": found.end,
        "lag": max(0, found.end - found.position),
    }


def host_document(host: Host) -> dict[str, Any]:
    """Return the address of an instance."""
    return {"host": host.host, "port": host.port}


def _instance_document(instance: InstanceInfo) -> dict[str, Any]:
    return {
        "name": instance.name, "role": "active" if instance.is_active else "standby",
        **host_document(instance.address), "stores": list(instance.stores),
        "topic_partitions": list(instance.topic_partitions),
        "standby_stores": list(instance.standby_stores),
        "standby_topic_partitions": list(instance.standby_topic_partitions),
    }
