"""Routes that read stores: keys, entries, windows, sessions, versions.

A lookup of one key runs in the event loop, because it takes less time than a change of threads. If
the replica has to be brought to the last commit first, and for everything else, it runs in a
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import Route

from penstock.queries.http import models
from penstock.queries.http.context import Context, parse_time, time_bounds
from penstock.queries.http.json_values import (
    decoded_base64,
    key_from_json,
    render,
    time_fields,
    value_fields,
    window_fields,
)
from penstock.queries.http.pages import (
    KeyBounds,
    Page,
    WindowPlace,
    entry_page,
    key_window_page,
    session_page,
    version_page,
    window_page,
)
from penstock.queries.http.positions import (
    BOUND_PARAMETER,
    HEADER,
    WITH_POSITION,
    Bound,
    PositionedRead,
)
from penstock.queries.http.problems import Problem
from penstock.queries.http.status_routes import host_document, json_response, positions_document
from penstock.queries.state_reader import ServedStore

Store = Annotated[str, Path(description="the name of the store", examples=["counts"])]
Encoding = Annotated[
    Literal["text", "json", "base64"],
    Query(description="how the key is written: as text, as JSON, or its bytes in base64"),
]
Order = Annotated[Literal["asc", "desc"], Query(description="ascending or descending")]
Limit = Annotated[int | None, Query(description="the number of entries of a page")]
Cursor = Annotated[str | None, Query(description="the value of 'next' of the previous page")]
Key = Annotated[str, Query(description="the key")]
OptionalKey = Annotated[str | None, Query(description="the key; all keys without it")]
TimeFrom = Annotated[
    str | None, Query(alias="from", description="the earliest time: ISO 8601 or milliseconds")
]
TimeTo = Annotated[
    str | None, Query(alias="to", description="the latest time: ISO 8601 or milliseconds")
]
_ENCODINGS = ("text", "json", "base64")
_KEY_PATH = "/stores/{store}/keys/{key:path}"
_NO_ADDRESS = (
    "No instance has announced an address. Instances with the setting application.server announce "
    "theirs; 'penstock run --serve' sets it."
)
_NO_ACTIVE = (
    "The known instances are standbys. The application is starting, or the instance that runs it "
    "has no application.server."
)


def lookup_route(context: Context) -> Route:
    """Return the route of `/stores/STORE/keys/KEY` without FastAPI's dependencies.

    They take longer than the lookup. It is for applications whose routes have no dependencies, and
    comes before the route of the same path that `add_store_routes` adds, which describes it.
    """
    route = Route(_KEY_PATH, _lookup_by_path(context), methods=["GET"])
    # Starlette adds HEAD, which the other routes do not support.
    route.methods = {"GET"}
    return route


def add_store_routes(router: APIRouter, context: Context) -> None:
    """Add the routes of all kinds of stores."""
    # The first route is found fastest.
    _add_lookups(router, context)
    _add_descriptions(router, context)
    _add_entries(router, context)
    _add_windows(router, context)
    _add_sessions(router, context)
    _add_versions(router, context)


def _add_descriptions(router: APIRouter, context: Context) -> None:
    reader = context.reader

    @router.get(
        "/stores", tags=["stores"], summary="All stores", response_model=models.StoreList
    )
    async def stores() -> Response:
        def describe() -> list[dict[str, Any]]:
            found = reader.stores()
            return [_store_document(context, found[name]) for name in sorted(found)]

        return json_response({"stores": await run_in_threadpool(describe)})

    @router.get(
        "/stores/{store}", tags=["stores"], summary="One store",
        response_model=models.StoreDocument,
    )
    async def store(store: Store) -> Response:
        found = context.store(store)
        return json_response(await run_in_threadpool(_store_document, context, found))

    @router.get(
        "/stores/{store}/positions", tags=["stores"],
        summary="The positions of a store in its changelog", response_model=models.StorePositions,
    )
    async def positions(store: Store) -> Response:
        found = context.store(store)
        lags = await run_in_threadpool(reader.lags)
        return json_response(positions_document(store, lags.get(found.name, {})))

    @router.get(
        "/stores/{store}/location", tags=["stores"], summary="The instance that runs a key's task",
        response_model=models.LocationDocument,
    )
    async def location(store: Store, key: Key, encoding: Encoding = "text") -> Response:
        found = context.store(store)
        typed = context.key(found, key, encoding)
        place = await run_in_threadpool(reader.locate, store, typed)
        return json_response({
            "key": render(typed), "partition": place.partition,
            "active": None if place.active is None else host_document(place.active),
            "standbys": [host_document(each) for each in place.standbys],
            **({} if place.active is not None else {
                "detail": _NO_ACTIVE if place.standbys else _NO_ADDRESS
            }),
        })


def _store_document(context: Context, store: ServedStore) -> dict[str, Any]:
    entries: int | None = None
    if store.kind == "key-value" and context.reader.not_ready_reason() is None:
        entries = context.reader.store(store.name).approximate_num_entries
    return {
        "name": store.name, "kind": store.kind, "key_type": store.key_serde.name,
        "value_type": store.value_serde.name, "is_global": store.is_global,
        "partitions": list(store.partitions), "approximate_entries": entries,
    }


# ---- keys ------------------------------------------------------------------------------------


def _lookup_by_path(context: Context) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    # It takes the request as it is: FastAPI's checks of parameters take longer than the lookup.
    async def by_path(request: Request) -> Response:
        path = request.path_params
        parameters = request.query_params if request.scope["query_string"] else {}
        return await _lookup(context, request, path["key"], parameters)

    return by_path


def _add_lookups(router: APIRouter, context: Context) -> None:
    async def by_query(request: Request) -> Response:
        parameters = request.query_params
        if "key" not in parameters:
            raise Problem(400, "The parameter 'key' is missing.")
        return await _lookup(context, request, parameters["key"], parameters)

    for path, place, endpoint in (
        (_KEY_PATH, "path", _lookup_by_path(context)), ("/stores/{store}/key", "query", by_query)
    ):
        router.add_api_route(
            path, endpoint, methods=["GET"], tags=["keys"],
            summary="The value of a key", response_model=models.Entry, responses=WITH_POSITION,
            openapi_extra={"parameters": _lookup_parameters(place)},
        )

    @router.post(
        "/stores/{store}/lookup", tags=["keys"], summary="The values of several, or of long keys",
        response_model=models.LookupResult, responses=WITH_POSITION,
    )
    async def lookup(
        store: Store, body: models.LookupRequest, bound: Bound = None
    ) -> Response:
        found = context.store(store, "key-value", "versioned")
        if len(body.keys) > context.settings.max_page_size:
            raise Problem(
                400, f"A lookup has at most {context.settings.max_page_size} keys, not "
                f"{len(body.keys)}."
            )
        keys = [
            context.checked_key(found, key_from_json(key, found.key_serde)) for key in body.keys
        ]

        positioned = PositionedRead(context, store, bound)
        view = await positioned.open()

        def read() -> Response:
            entries = [_found(key, view.get(key)) for key in keys]
            return json_response({"entries": entries}, headers=positioned.headers())

        return await run_in_threadpool(read)


def _lookup_parameters(place_of_key: str) -> list[dict[str, Any]]:
    text = {"type": "string"}
    return [
        {"name": "store", "in": "path", "required": True, "schema": text},
        {"name": "key", "in": place_of_key, "required": True, "schema": text,
         "description": "the key; slashes may be written as they are"},
        {"name": "encoding", "in": "query", "schema": {**text, "enum": list(_ENCODINGS)},
         "description": "how the key is written: as text, as JSON, or its bytes in base64"},
        {"name": "as_of", "in": "query", "schema": text,
         "description": "the time of the version, in a versioned store"},
        BOUND_PARAMETER,
    ]


async def _lookup(
    context: Context, request: Request, key: str, parameters: Mapping[str, str]
) -> Response:
    store = request.path_params["store"]
    found = context.store(store, "key-value", "versioned")
    encoding, as_of = parameters.get("encoding", "text"), parameters.get("as_of")
    if encoding not in _ENCODINGS:
        raise Problem(400, f"encoding must be one of {', '.join(_ENCODINGS)}.")
    arguments = [context.key(found, key, encoding)]
    typed = arguments[0]
    if as_of is not None:
        if found.kind != "versioned":
            raise Problem(400, f"Store '{store}' has no versions: leave out as_of.")
        arguments.append(parse_time(as_of, "as_of"))
    positioned = PositionedRead(context, store, request.headers.get(HEADER), typed)
    view = await positioned.open()
    if view.is_current:
        value = view.get(*arguments)
    else:
        value = await run_in_threadpool(view.get, *arguments)
    if value is None:
        shown = key if len(key) <= 100 else f"{key[:100]}..."
        when = "" if as_of is None else f" at {as_of}"
        raise Problem(404, f"Store '{store}' has no key '{shown}'{when}.", positioned.headers())
    return json_response(
        {"key": render(typed), **value_fields(value)}, headers=positioned.headers()
    )


def _found(key: Any, value: Any) -> dict[str, Any]:
    if value is None:
        return {"key": render(key), "found": False, "value": None}
    return {"key": render(key), "found": True, **value_fields(value)}


# ---- ranges ----------------------------------------------------------------------------------


def _add_entries(router: APIRouter, context: Context) -> None:
    @router.get(
        "/stores/{store}/entries", tags=["ranges"],
        summary="Entries in the order of their serialized keys", response_model=models.EntryPage,
        responses=WITH_POSITION,
    )
    async def entries(
        *, store: Store,
        key_from: Annotated[
            str | None, Query(alias="from", description="the first key")
        ] = None,
        key_to: Annotated[str | None, Query(alias="to", description="the last key")] = None,
        prefix: Annotated[
            str | None, Query(description="only keys that start with it: text or base64")
        ] = None,
        encoding: Encoding = "text", order: Order = "asc", limit: Limit = None,
        cursor: Cursor = None, bound: Bound = None,
    ) -> Response:
        found = context.store(store, "key-value")
        bounds = KeyBounds(
            None if key_from is None else _serialized(context, found, key_from, encoding),
            None if key_to is None else _serialized(context, found, key_to, encoding),
            b"" if prefix is None else _prefix(context, found, prefix, encoding),
            order == "desc",
        )
        query = ("entries", store, key_from, key_to, prefix, encoding, order)
        return await _send_page(
            PositionedRead(context, store, bound), query, cursor, bytes, lambda after: entry_page(
                _partitions(context, found), found.key_serde.serialize, bounds,
                context.page_size(limit), after,
            ),
            lambda key, value: {"key": render(key), **value_fields(value)},
        )


def _prefix(context: Context, store: ServedStore, text: str, encoding: str) -> bytes:
    if encoding == "text" and store.key_serde.python_type not in (str, bytes):
        raise Problem(
            400, f"Keys of type {store.key_serde.name} have no text prefix. Give the first bytes "
            "of the key with encoding=base64."
        )
    # The first bytes of a key need not be a key.
    return decoded_base64(text, "prefix") if encoding == "base64" else _serialized(
        context, store, text, encoding
    )


def _serialized(context: Context, store: ServedStore, text: str, encoding: str) -> bytes:
    key: bytes = store.key_serde.serialize(context.key(store, text, encoding))
    return key


def _partitions(context: Context, store: ServedStore) -> dict[int, Any]:
    return {
        partition: context.reader.store(store.name, partition) for partition in store.partitions
    }


async def _send_page(
    positioned: PositionedRead, query: tuple[Any, ...], cursor: str | None, place: type,
    read: Callable[[Any], Page], document: Callable[[Any, Any], dict[str, Any]],
) -> Response:
    cursors = positioned.context.cursors
    after = None if cursor is None else cursors.read(cursor, query, place)
    await positioned.open()

    def page() -> Response:
        items, following = read(after)
        return json_response({
            "entries": [document(key, value) for key, value in items],
            "next": None if following is None else cursors.create(query, following),
        }, headers=positioned.headers())

    return await run_in_threadpool(page)


def _window_entry(windowed: Any, value: Any) -> dict[str, Any]:
    return {
        "key": render(windowed.key), "window": window_fields(windowed.window),
        **value_fields(value),
    }


def _add_windows(router: APIRouter, context: Context) -> None:
    @router.get(
        "/stores/{store}/windows", tags=["ranges"],
        summary="The windows of a key, or of all keys, by start", response_model=models.WindowPage,
        responses=WITH_POSITION,
    )
    async def windows(
        *, store: Store, key: OptionalKey = None, encoding: Encoding = "text",
        time_from: TimeFrom = None, time_to: TimeTo = None, order: Order = "asc",
        limit: Limit = None, cursor: Cursor = None, bound: Bound = None,
    ) -> Response:
        found = context.store(store, "window")
        bounds = time_bounds(time_from, time_to, order)
        size = context.page_size(limit)
        query = ("windows", store, key, encoding, time_from, time_to, order)
        if key is not None:
            typed = context.key(found, key, encoding)
            return await _send_page(
                PositionedRead(context, store, bound, typed), query, cursor, int,
                lambda after: key_window_page(
                    context.reader.store(store), typed, found.window_size_ms, bounds, size, after
                ),
                _window_entry,
            )
        return await _send_page(
            PositionedRead(context, store, bound), query, cursor, WindowPlace,
            lambda after: window_page(
                _partitions(context, found), found.key_serde.serialize, found.window_size_ms,
                bounds, size, after,
            ),
            _window_entry,
        )


def _add_sessions(router: APIRouter, context: Context) -> None:
    @router.get(
        "/stores/{store}/sessions", tags=["ranges"],
        summary="The sessions of a key, or of all keys, that overlap a range of time",
        response_model=models.WindowPage, responses=WITH_POSITION,
    )
    async def sessions(
        *, store: Store, key: OptionalKey = None, encoding: Encoding = "text",
        time_from: TimeFrom = None, time_to: TimeTo = None, order: Order = "asc",
        limit: Limit = None, cursor: Cursor = None, bound: Bound = None,
    ) -> Response:
        found = context.store(store, "session")
        bounds = time_bounds(time_from, time_to, order)
        typed = None if key is None else context.key(found, key, encoding)
        return await _send_page(
            PositionedRead(context, store, bound),
            ("sessions", store, key, encoding, time_from, time_to, order), cursor,
            WindowPlace, lambda after: session_page(
                _partitions(context, found), found.key_serde.serialize, typed, bounds,
                context.page_size(limit), after,
            ),
            _window_entry,
        )


def _add_versions(router: APIRouter, context: Context) -> None:
    @router.get(
        "/stores/{store}/versions", tags=["ranges"],
        summary="The versions of a key that are valid in a range of time",
        response_model=models.VersionPage, responses=WITH_POSITION,
    )
    async def versions(
        *, store: Store, key: Key, encoding: Encoding = "text", time_from: TimeFrom = None,
        time_to: TimeTo = None, order: Order = "asc", limit: Limit = None, cursor: Cursor = None,
        bound: Bound = None,
    ) -> Response:
        found = context.store(store, "versioned")
        bounds = time_bounds(time_from, time_to, order)
        typed = context.key(found, key, encoding)
        size = context.page_size(limit)
        query = ("versions", store, key, encoding, time_from, time_to, order)
        after = None if cursor is None else context.cursors.read(cursor, query, int)
        positioned = PositionedRead(context, store, bound, typed)
        view = await positioned.open()
        rows, following = await run_in_threadpool(
            version_page, view, typed, bounds, size, after
        )
        return json_response({
            "key": render(typed), "versions": [_version_document(row) for row in rows],
            "next": None if following is None else context.cursors.create(query, following),
        }, headers=positioned.headers())


def _version_document(version: Any) -> dict[str, Any]:
    end = version.valid_to
    return {
        "value": render(version.value), **time_fields("valid_from", version.timestamp),
        **({"valid_to": None, "valid_to_ms": None} if end is None else time_fields(
            "valid_to", end
        )),
    }
