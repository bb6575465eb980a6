"""`penstock run FILE` on Spark: workers use the classes that the file defines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.log import Log, RecordColumns

pytestmark = [pytest.mark.slow, pytest.mark.spark]

APP = '''
from dataclasses import dataclass
import msgspec
from penstock import Materialized, Serdes, StreamsBuilder, StreamsConfig

config = StreamsConfig(application_id="app", default_key_serde=Serdes.string())


class User(msgspec.Struct):
    name: str
    city: str = "Bern"


@dataclass
class Visits:
    user: User
    count: int = 0


def topology():
    builder = StreamsBuilder()
    users = builder.stream("in", value=Serdes.json(User))
    users.to("copy", value=Serdes.json(User))
    (
        users.group_by_key(value=Serdes.json(User))
        .aggregate(
            lambda: None, lambda key, user, past: Visits(user, (past.count if past else 0) + 1),
            store=Materialized("visits", value=Serdes.json(Visits)),
        )
        .to_stream().to("out", value=Serdes.json(Visits))
    )
    return builder.build()


if __name__ == "__main__":
    import sys
    from penstock import Streams

    with Streams(topology(), config.with_(log=sys.argv[1])) as streams:
        streams.run_until_caught_up()
'''


@pytest.mark.parametrize("how", [("-m", "penstock.cli", "run"), ()], ids=["run", "main"])
def test_structs_and_dataclasses_defined_in_the_file(
    how: tuple[str, ...], tmp_path: Path, log: Log
) -> None:
    (tmp_path / "app.py").write_text(APP)
    for topic in ("in", "copy", "out"):
        log.create_topic(topic)
    log.append("in", 0, RecordColumns(
        [b"a", b"a"], [b'{"name":"Ann"}', b'{"name":"Ann","city":"Rome"}']
    ))
    options = ("--once", "--quiet", "--log", log.address) if how else (log.address,)
    subprocess.run(
        [sys.executable, *how, "app.py", *options], cwd=tmp_path, check=True, timeout=240,
        env={**os.environ, "PYTHONPATH": ""},
    )

    def values(topic: str) -> list[bytes | None]:
        return [value for batch in log.read(topic, 0, 0) for value in batch.columns().values]

    assert values("copy") == [b'{"name":"Ann","city":"Bern"}', b'{"name":"Ann","city":"Rome"}']
    assert values("out")[-1] == b'{"user":{"name":"Ann","city":"Rome"},"count":2}'
