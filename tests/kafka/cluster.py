"""One broker for many tests: what a test leaves behind is removed before the next."""

from __future__ import annotations

import time

from penstock.log import open_log
from penstock.log.errors import GroupNotEmpty

PATIENCE_S = 60.0


def swept(address: str) -> str:
    """The log's address, once there are no topics and no groups in it."""
    with open_log(address) as log:
        for topic in log.topics():
            log.delete_topic(topic.name)
        deadline = time.monotonic() + PATIENCE_S
        for group in log.groups():
            while True:
                try:
                    log.delete_group(group)
                except GroupNotEmpty:
                    # A member that was killed is noticed when its session times out.
                    assert time.monotonic() < deadline, f"group '{group}' never becomes empty"
                    time.sleep(0.05)
                else:
                    break
    return address
