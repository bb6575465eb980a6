"""`penstock prepare`, and the JVM that uses its archive."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.engine.spark import class_archive

PREPARE = """
import sys
sys.prefix = sys.argv[1]
from penstock.cli.main import main
sys.exit(main(["prepare"]))
"""
#: Prints whether the JVM of a new context has mapped the archive into its memory.
START = """
import sys
sys.prefix = sys.argv[1]
from pathlib import Path
from penstock import StreamsConfig
from penstock.engine.spark import open_backend
from penstock.engine.spark.pyspark_internals import current_gateway
backend = open_backend(StreamsConfig(application_id="started", log="started.db"), master="local[1]")
print("spark.jsa" in Path(f"/proc/{current_gateway().proc.pid}/maps").read_text())
backend.close()
"""


def test_jvm_starts_without_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert class_archive.archive_options() == ()
    path = class_archive.archive_path()
    path.parent.mkdir(parents=True)
    path.touch()
    assert class_archive.archive_options()[0] == f"-XX:SharedArchiveFile={path}"


def run(program: str, prefix: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, str(prefix)], cwd=prefix, capture_output=True, text=True,
        check=False, timeout=180,
    )


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads the maps of a process")
def test_prepared_archive_is_used_by_the_next_start(tmp_path: Path) -> None:
    prepared = run(PREPARE, tmp_path)
    assert prepared.returncode == 0, prepared.stderr
    assert prepared.stdout == ""
    assert [path.name for path in (tmp_path / "share" / "penstock").iterdir()] == ["spark.jsa"]
    started = run(START, tmp_path)
    assert (started.stdout, started.stderr) == ("True\n", "")


@pytest.mark.spark
def test_unusable_archive_is_ignored_without_a_word(tmp_path: Path) -> None:
    archive = tmp_path / "share" / "penstock" / "spark.jsa"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"of another version of Java")
    started = run(START.replace('print("spark.jsa" in', "print(").replace("read_text())", "name)"),
                  tmp_path)
    assert (started.stdout, started.stderr) == ("maps\n", "")
