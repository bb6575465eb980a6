"""A log that is restored from a backup: replicas that are ahead of it are rebuilt."""

from __future__ import annotations

import shutil
from pathlib import Path

from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig
from penstock.log import RecordColumns, open_log

PATIENCE_S = 240.0


def run(folder: Path, *words: str) -> list[int]:
    """Send words, count them, and return all counts in the output."""
    builder = StreamsBuilder()
    words_in = builder.stream("in", key=Serdes.string(), value=Serdes.string())
    words_in.group_by_key().count(store="counts").to_stream().to("out", value=Serdes.long())
    config = StreamsConfig(
        application_id="app", log=str(folder / "log.db"), state_dir=str(folder / "state"),
        statestore_cache_max_bytes=0,
    )
    with open_log(folder / "log.db") as log:
        log.append("in", 0, RecordColumns([word.encode() for word in words], [b"x"] * len(words)))
    with Streams(builder.build(), config, master="inline") as streams:
        streams.run_until_caught_up(PATIENCE_S)
    with open_log(folder / "log.db") as log:
        return [
            int.from_bytes(value or b"")
            for batch in log.read("out", 0, 0) for value in batch.columns().values
        ]


def test_application_resumes_from_the_backup(tmp_path: Path) -> None:
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("in", 1)
        log.create_topic("out", 1)
    assert run(tmp_path, "a") == [1]
    backup = tmp_path / "backup"
    backup.mkdir()
    for file in tmp_path.glob("log.db*"):
        shutil.copy(file, backup)
    assert run(tmp_path, "a") == [1, 2]
    assert run(tmp_path, "a") == [1, 2, 3]
    for file in tmp_path.glob("log.db*"):
        file.unlink()
    for file in backup.iterdir():
        shutil.copy(file, tmp_path)
    assert run(tmp_path, "a", "a") == [1, 2, 3]
