"""penstock without its optional packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.extras import explain_missing_extra

#: None in sys.modules makes an import fail like that of a missing package.
WITHOUT = "import sys\nfor name in {missing!r}: sys.modules[name] = None\n"

TOPOLOGY = """
from penstock import Serdes, StreamsBuilder
text = Serdes.string()
builder = StreamsBuilder()
stream = builder.stream("in", key=text, value=text)
stream.map_values(str.upper).to("out", key=text, value=text)
"""
DRIVER = TOPOLOGY + """
from penstock.testing import TopologyTestDriver
with TopologyTestDriver(builder.build()) as driver:
    driver.create_input_topic("in", key=text, value=text).pipe_input("k", "v")
    print(driver.create_output_topic("out", key=text, value=text).read_value())
"""
STREAMS = TOPOLOGY + """
from penstock import Streams, StreamsConfig
from penstock.log import open_log
with open_log("log.db") as log:
    log.create_topic("in", 1)
    log.create_topic("out", 1)
config = StreamsConfig(application_id="app", log="log.db", state_dir="state")
with Streams(builder.build(), config, master={master!r}) as streams:
    streams.run_until_caught_up()
"""


def run(code: str, *missing: str, where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT.format(missing=missing) + code], cwd=where, text=True,
        capture_output=True, check=False, timeout=120,
    )


def test_test_driver_needs_no_optional_package(tmp_path: Path) -> None:
    ran = run(DRIVER, "pyspark", "py4j", "confluent_kafka", "pydantic", where=tmp_path)
    assert ran.stdout == "V\n", ran.stderr


def test_inline_engine_on_the_embedded_log_needs_no_optional_package(tmp_path: Path) -> None:
    code = STREAMS.format(master="inline")
    ran = run(code, "pyspark", "py4j", "confluent_kafka", "pydantic", where=tmp_path)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("missing", [["pyspark"], ["pyspark", "py4j"]], ids=str)
def test_missing_pyspark_is_named_with_the_extra_to_install(
    missing: list[str], tmp_path: Path
) -> None:
    ran = run(STREAMS.format(master=None), *missing, where=tmp_path)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == (
        "penstock.errors.MissingDependencyException: PySpark is not installed. Install it with "
        "`pip install 'penstock[spark]'`, or run without Spark: master=\"inline\"."
    )


def test_missing_confluent_kafka_is_named_with_the_extra_to_install(tmp_path: Path) -> None:
    code = "from penstock.log import open_log; open_log('kafka://127.0.0.1:9092')"
    ran = run(code, "confluent_kafka", where=tmp_path)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == (
        "penstock.errors.MissingDependencyException: confluent-kafka is not installed. Install it "
        "with `pip install 'penstock[kafka]'`."
    )


def test_command_line_reports_a_missing_package_in_one_line(tmp_path: Path) -> None:
    code = "from penstock.cli.main import main; sys.exit(main(sys.argv[1:]))"
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(missing=("confluent_kafka",)) + code,
         "topics", "list", "--log", "kafka://127.0.0.1:9092"],
        cwd=tmp_path, text=True, capture_output=True, check=False, timeout=120,
    )
    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 1
    assert "Install it with `pip install 'penstock[kafka]'`." in ran.stderr


def test_other_missing_modules_keep_their_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), explain_missing_extra():
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401


def test_broker_download_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.broker import jars

    monkeypatch.setattr(jars.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Exception, match=r"PySpark is not installed.*penstock\[spark\]"):
        jars._ivy_jar()
