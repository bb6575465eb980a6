"""Which connections wait for their clients, and for how long."""

from __future__ import annotations

from typing import Any

from penstock.queries.http.connection_watch import ConnectionWatch


class Connection:
    """A connection of uvicorn, as far as the watch sees it."""

    def __init__(self) -> None:
        self.cycle: Any = None
        self.transport = self
        self.unsent_bytes = 0
        self.is_closed = False

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def abort(self) -> None:
        self.is_closed = True


def closed_after(*times: float, connection: Any, **changes: dict[float, Any]) -> bool:
    """Check at several times, with changes of attributes before; the limit is 10 s."""
    now = [0.0]
    watch = ConnectionWatch(10, clock=lambda: now[0])
    for now[0] in times:
        for name, values in changes.items():
            if now[0] in values:
                setattr(connection, name, values[now[0]])
        watch.check({connection})
    return bool(connection.is_closed)


class Cycle:
    """A request and its response."""

    def __init__(self, *, complete: bool) -> None:
        self.response_complete = complete


def test_connection_without_a_request_is_closed() -> None:
    assert not closed_after(0, 5, 9.9, connection=Connection())
    assert closed_after(0, 5, 10, connection=Connection())


def test_time_of_the_application_does_not_count() -> None:
    assert not closed_after(
        0, 9, 100, 109, connection=Connection(),
        cycle={9: Cycle(complete=False), 100: Cycle(complete=True)},
    )


def test_every_response_starts_the_time_again() -> None:
    changes: dict[float, Any] = {time: Cycle(complete=True) for time in (9, 18, 27)}
    assert not closed_after(0, 9, 18, 27, 36, connection=Connection(), cycle=changes)
    assert closed_after(0, 9, 18, 27, 37, connection=Connection(), cycle=changes)


def test_connection_is_closed_if_the_client_does_not_take_the_response() -> None:
    done = {0: Cycle(complete=True)}
    taken = {0: 300, 9: 200, 18: 100}
    assert not closed_after(0, 9, 18, 27, connection=Connection(), cycle=done, unsent_bytes=taken)
    assert closed_after(0, 9, 18, 28, connection=Connection(), cycle=done, unsent_bytes=taken)


def test_web_sockets_are_left_alone() -> None:
    socket = Connection()
    del socket.cycle
    assert not closed_after(0, 100, connection=socket)
