"""One broker serves many tests: each test first removes what earlier ones left."""

from __future__ import annotations

import time

from penstock.log import open_log
from penstock.log.errors import GroupNotEmpty

TIMEOUT_S = 240.0


def clear(address: str) -> str:
    """Delete all topics and groups of a log, and return its address."""
    with open_log(address) as log:
        for topic in log.topics():
            log.delete_topic(topic.name)
        deadline = time.monotonic() + TIMEOUT_S
        for group in log.groups():
            while True:
                try:
                    log.delete_group(group)
                except GroupNotEmpty:
                    # A killed member stays in the group until its session times out.
                    assert time.monotonic() < deadline, f"group '{group}' is not empty"
                    time.sleep(0.05)
                else:
                    break
    return address
