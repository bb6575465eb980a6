"""Counts the actions of browsers, and asks those with five or more for a captcha.

    captcha-logs ─┬─ action ─ count ────────────────────── left join ─ 5 or more ─ captcha-requests
                  └─ BrowserCaptchaVerified ─ keep first ──┘

`build_with_global_table` is the same with a global table of solved captchas, from the topic
`captchaStream`. A change of a global table updates no result: the next action of the browser does.
"""

from __future__ import annotations

import msgspec

from penstock import KStream, StreamsBuilder, Topology

LOGS = "captcha-logs"
CAPTCHAS = "captchaStream"
REQUESTS = "captcha-requests"
#: So many actions need a captcha.
MANY = 5
VERIFIED = "BrowserCaptchaVerified"


class LogEvent(msgspec.Struct, frozen=True):
    """A line of a web server's log, as its appender sends it."""

    logger_name: str
    browser_hash: str = msgspec.field(name="browserHash")
    message: str = ""


def solved_by(key: str, event: LogEvent) -> tuple[str, int]:
    """The browser of an event; only the key matters."""
    return event.browser_hash, 1


def open_actions(actions: int, captcha: int | None) -> int:
    """The number of actions without a solved captcha."""
    return actions if captcha is None else 0


def ask(browser: str, actions: int) -> None:
    """Ask for a captcha."""
    # Printed, because the loggers of Spark's workers show warnings and errors only.
    print(f"Asking captcha for {browser}", flush=True)


def request(actions: KStream[str, int]) -> None:
    """Ask the browsers with many actions, and publish who was asked."""
    suspicious = actions.filter(lambda browser, count: count >= MANY)
    suspicious.peek(ask).to(REQUESTS)


def build() -> Topology:
    """Tables of actions and of solved captchas, joined."""
    builder = StreamsBuilder()
    events = builder.stream(LOGS, key=str, value=LogEvent)
    solved = (
        events.filter(lambda event: VERIFIED in event.logger_name)
        .map(solved_by)
        .group_by_key(name="captchas")
        .reduce(lambda first, again: first, store="captchaStore")
    )
    counts = (
        events.filter_not(lambda event: VERIFIED in event.logger_name)
        .group_by(lambda event: event.browser_hash, name="actions")
        .count(store="browserActionsCountStore")
    )
    request(counts.left_join(solved, open_actions).to_stream())
    return builder.build()


def build_with_global_table() -> Topology:
    """The same with a global table of solved captchas."""
    builder = StreamsBuilder()
    captchas = builder.global_table(CAPTCHAS, key=str, value=int, store="captchaStreamStore")
    events = builder.stream(LOGS, key=str, value=LogEvent)
    counts = events.group_by(lambda event: event.browser_hash, name="actions").count(
        store="browserActionsCountStore"
    )
    request(counts.to_stream().left_join(captchas, lambda browser, count: browser, open_actions))
    return builder.build()
