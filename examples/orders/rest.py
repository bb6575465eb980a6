"""Runs the orders application and serves its tables over HTTP.

    python examples/orders/rest.py --log orders.db --port 8080 [--master inline]

Start it twice, with ports 8080 and 8081. One instance runs the application; both serve all
locations. The rest of the state is below /state, its description at /state/docs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

if not __package__:
    # Started as a file: add the examples folder to the path, also for Spark's workers.
    FOLDER = str(Path(__file__).resolve().parents[1])
    sys.path.insert(0, FOLDER)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (FOLDER, os.environ.get("PYTHONPATH")))
    )

import msgspec
from fastapi import FastAPI, HTTPException, Response

from orders.topology import KINDS, build
from penstock import Streams, StreamsConfig
from penstock.queries.http import HttpSettings, Server, create_app

APPLICATION = "orders-stream-app"
#: How the tables of the two kinds of orders are named in paths.
OrderType = Enum("OrderType", {kind: f"{kind}_orders" for kind in KINDS})


def create_rest(streams: Streams, settings: HttpSettings) -> FastAPI:
    """Return the routes of the application, with penstock's own below /state."""
    app = FastAPI(title="Orders", docs_url=None, redoc_url=None)
    add_totals(app, streams)
    add_windows(app, streams)
    add_metadata(app, streams)
    app.mount("/state", create_app(streams, settings))
    return app


def respond(document: Any) -> Response:
    """Return a document as JSON: camel case, and money as text."""
    return Response(msgspec.json.encode(document), media_type="application/json")


def add_totals(app: FastAPI, streams: Streams) -> None:
    """Counts and revenue of each location. `query_other_hosts` is not needed: each has all."""

    def counts(kind: str) -> Iterator[dict[str, Any]]:
        with streams.store(f"{kind}_count", stale=True).all() as rows:
            for location, count in rows:
                yield {"locationId": location, "orderCount": count}

    def revenues(kind: str) -> Iterator[dict[str, Any]]:
        with streams.store(f"{kind}_revenue", stale=True).all() as rows:
            for location, total in rows:
                yield {"locationId": location, "orderType": kind, "totalRevenue": total}

    @app.get("/v1/orders/count/{order_type}")
    def count(
        order_type: OrderType, location_id: str | None = None, query_other_hosts: bool = True
    ) -> Response:
        kind = str(order_type.value)
        if location_id is None:
            return respond(list(counts(kind)))
        found = streams.store(f"{kind}_count", stale=True).get(location_id)
        if found is None:
            raise HTTPException(404, f"No orders of location '{location_id}'.")
        return respond({"locationId": location_id, "orderCount": found})

    @app.get("/v1/orders/count")
    def all_counts() -> Response:
        return respond([
            {**row, "orderType": kind.value} for kind in OrderType for row in counts(kind.value)
        ])

    @app.get("/v1/orders/revenue/{order_type}")
    def revenue(order_type: OrderType, location_id: str | None = None) -> Response:
        kind = str(order_type.value)
        if location_id is None:
            return respond(list(revenues(kind)))
        found = streams.store(f"{kind}_revenue", stale=True).get(location_id)
        if found is None:
            raise HTTPException(404, f"No orders of location '{location_id}'.")
        return respond({"locationId": location_id, "orderType": kind, "totalRevenue": found})

    @app.get("/v1/orders/revenue")
    def all_revenues() -> Response:
        return respond([row for kind in OrderType for row in revenues(kind.value)])


def add_windows(app: FastAPI, streams: Streams) -> None:
    """Counts and revenue of windows, optionally of those that start in a range of time."""

    def windows(
        kind: str, table: str, field: str, times: tuple[datetime | None, datetime | None]
    ) -> Iterator[dict[str, Any]]:
        low, high = (
            each and (each if each.tzinfo else each.replace(tzinfo=UTC)) for each in times
        )
        store = streams.store(f"{kind}_{table}_window", stale=True)
        with store.fetch_all(low or 0, high or 2**63 - 1) as rows:
            for (location, window), value in rows:
                yield {
                    "locationId": location, field: value, "orderType": kind,
                    "startWindow": window.start_time.isoformat(),
                    "endWindow": window.end_time.isoformat(),
                }

    @app.get("/v1/orders/windows/count")
    def all_counts(
        from_time: datetime | None = None, to_time: datetime | None = None
    ) -> Response:
        return respond([
            row for kind in OrderType
            for row in windows(kind.value, "count", "orderCount", (from_time, to_time))
        ])

    @app.get("/v1/orders/windows/count/{order_type}")
    def count(
        order_type: OrderType, from_time: datetime | None = None, to_time: datetime | None = None
    ) -> Response:
        times = (from_time, to_time)
        return respond(list(windows(str(order_type.value), "count", "orderCount", times)))

    @app.get("/v1/orders/windows/revenue/{order_type}")
    def revenue(
        order_type: OrderType, from_time: datetime | None = None, to_time: datetime | None = None
    ) -> Response:
        times = (from_time, to_time)
        return respond(list(windows(str(order_type.value), "revenue", "totalRevenue", times)))


def add_metadata(app: FastAPI, streams: Streams) -> None:
    """The addresses of the instances, and of the one that runs the task of a location."""

    @app.get("/v1/metadata/all")
    def instances() -> Response:
        return respond([
            {"host": each.host, "port": each.port}
            for each in streams.metadata_for_all_instances()
        ])

    @app.get("/v1/metadata/{order_type}/{location_id}")
    def location(order_type: OrderType, location_id: str) -> Response:
        found = streams.query_metadata_for_key(f"{order_type.value}_count", location_id)
        active = found.active_host
        return respond({"host": active.host, "port": active.port, "key": location_id})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until the process is stopped."""
    parser = argparse.ArgumentParser(description="The orders application with its REST interface.")
    parser.add_argument("--log", required=True, metavar="PATH|kafka://HOST:PORT")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--state-dir", help="default: state-PORT")
    parser.add_argument("--master", help="the Spark master; 'inline' runs without Spark")
    chosen = parser.parse_args(arguments)
    settings = HttpSettings(port=chosen.port)
    config = StreamsConfig(
        application_id=APPLICATION, log=chosen.log,
        state_dir=chosen.state_dir or f"state-{chosen.port}",
        application_server=f"{settings.host}:{settings.port}", num_standby_replicas=1,
    )
    streams = Streams(build(), config, master=chosen.master)
    with streams, Server(create_rest(streams, settings), settings) as server:
        print(f"Serving on {server.url}", flush=True)
        streams.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
