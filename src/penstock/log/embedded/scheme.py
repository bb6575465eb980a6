"""The registry entry of the embedded log. Its addresses are paths."""

from __future__ import annotations

import os

from penstock.log.scheme import LogCapabilities, LogScheme

EMBEDDED = LogScheme(
    name="",
    title="the embedded log",
    address_form="a path",
    opener="penstock.log.embedded.log:open_embedded",
    capabilities=LogCapabilities(
        is_remote=False,
        takes_connection_settings=False,
        expires_offsets=False,
        reports_tombstones=True,
        cleans_itself=False,
    ),
    may_exist=os.path.exists,
)
