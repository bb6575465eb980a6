"""The route that pushes changes of a store."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from penstock.queries.changes import NoChangelog, StoreChange
from penstock.queries.http.context import Context
from penstock.queries.http.events import (
    CLOSING,
    ChangeFeed,
    EventStream,
    Position,
    Subscription,
    events,
    parse_position,
)
from penstock.queries.http.problems import Problem
from penstock.queries.http.store_routes import Encoding, OptionalKey, Store
from penstock.queries.state_reader import ServedStore


def add_change_routes(router: APIRouter, context: Context) -> None:
    """Add the route."""

    @router.get(
        "/stores/{store}/changes", tags=["changes"],
        summary="Pushes committed changes as server-sent events",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}, "description": "Events."}},
    )
    async def changes(
        request: Request, store: Store, key: OptionalKey = None, encoding: Encoding = "text",
        start: Annotated[
            Literal["end", "beginning"],
            Query(description="where a stream without Last-Event-ID starts"),
        ] = "end",
        follow: Annotated[
            bool, Query(description="false ends the stream at the last change")
        ] = True,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        found = context.store(store)
        reason = await run_in_threadpool(context.reader.not_ready_reason)
        if reason is not None:
            raise Problem(503, reason, {"Retry-After": "1"})
        typed = None if key is None else context.key(found, key, encoding)
        feed = await _feed(context, store)
        position = await _first_position(feed, start, last_event_id)
        if context.open_streams >= context.settings.max_event_streams:
            raise Problem(
                503, f"{context.open_streams} clients follow changes already. Try again later.",
                {"Retry-After": "5"},
            )
        subscription = Subscription(feed, position, _filter(found, typed), follow)
        context.open_streams += 1

        def on_end() -> None:
            context.open_streams -= 1

        return EventStream(
            events(subscription, request.scope.get(CLOSING, lambda: False)),
            send_timeout_s=context.settings.send_timeout_s, on_end=on_end,
        )


async def _feed(context: Context, store: str) -> ChangeFeed:
    feed = context.feeds.get(store)
    if feed is None:
        try:
            found = await run_in_threadpool(context.reader.changes, store)
        except NoChangelog as error:
            raise Problem(409, str(error)) from error
        feed = context.feeds.setdefault(store, ChangeFeed(found))
    return feed


async def _first_position(feed: ChangeFeed, start: str, last_event_id: str | None) -> Position:
    partitions = feed.changes.source.partitions
    ends = await feed.ends(max_age_s=0)
    first = dict(ends) if start == "end" else dict.fromkeys(partitions, 0)
    if last_event_id:
        # Partitions that were added since then are read from their beginning.
        first = dict.fromkeys(partitions, 0) | parse_position(last_event_id, partitions)
    return {number: min(offset, ends[number]) for number, offset in first.items()}


def _filter(store: ServedStore, key: Any) -> Any:
    if key is None:
        return lambda change: True
    wanted = store.key_serde.serialize(key)

    def wants(change: StoreChange) -> bool:
        return store.key_serde.serialize(change.key) == wanted

    return wants
