"""Settings from environment variables: names, precedence, secrets."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import StreamsConfig
from penstock.cli.environment import environment_settings, setting_name
from penstock.cli.errors import UsageError
from penstock.cli.run_config import build_config
from penstock.cli.topology_loader import load_target
from penstock.log import Log

BUILDER = """
from penstock import StreamsBuilder, StreamsConfig

builder = StreamsBuilder()
builder.stream("words", key=str, value=str).to("shouts")
"""
SECRET = "correct-horse-battery-staple"
Command = Callable[..., "subprocess.Popen[bytes]"]


@pytest.mark.parametrize(("variable", "name"), [
    ("PENSTOCK_SET_BOOTSTRAP_SERVERS", "bootstrap.servers"),
    ("PENSTOCK_SET_LOG", "log"),
    (
        "PENSTOCK_SET_RACK_AWARE_ASSIGNMENT_NON__OVERLAP__COST",
        "rack.aware.assignment.non_overlap_cost",
    ),
    ("PENSTOCK_SET_MY_OWN___NAME", "my.own-name"),
    ("PENSTOCK_SET_spark_executor_memoryOverhead", "spark.executor.memoryOverhead"),
    ("PENSTOCK_SET_spark_kubernetes_driver_pod_name", "spark.kubernetes.driver.pod.name"),
])
def test_variable_names_a_setting(variable: str, name: str) -> None:
    assert setting_name(variable) == name


@pytest.mark.parametrize("rest", ["", "_", "_A", "A_", "A____B"])
def test_variable_without_a_setting_name_is_refused(rest: str) -> None:
    with pytest.raises(UsageError, match=f"variable PENSTOCK_SET_{rest} does not name a setting"):
        environment_settings({f"PENSTOCK_SET_{rest}": SECRET})


def test_two_variables_for_one_setting_are_refused_without_their_values() -> None:
    with pytest.raises(UsageError, match=r"both set 'sasl\.password'") as caught:
        environment_settings({
            "PENSTOCK_SET_SASL_PASSWORD": SECRET, "PENSTOCK_SET_sasl_password": SECRET,
        })
    assert SECRET not in str(caught.value)


def test_other_variables_are_no_settings() -> None:
    assert environment_settings({"PENSTOCK_LOG": "a", "PENSTOCK_TOKEN": "b", "HOME": "c"}) == {}


@pytest.fixture
def config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., StreamsConfig]:
    """The configuration of `penstock run` with settings from each source."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("PENSTOCK_LOG", raising=False)

    def merged(
        module: str, *, file: str = "", variables: dict[str, str] | None = None,
        settings: tuple[tuple[str, str], ...] = (), **options: Any,
    ) -> StreamsConfig:
        (tmp_path / "environment_app.py").write_text(f"{BUILDER}\nconfig = {module}\n")
        (tmp_path / "streams.properties").write_text(file)
        for name, value in (variables or {}).items():
            monkeypatch.setenv(name, value)
        args = argparse.Namespace(**{
            "config": [str(tmp_path / "streams.properties")], "set": list(settings),
            "application_id": None, **options,
        })
        return build_config(load_target(str(tmp_path / "environment_app.py")), args)

    return merged


MODULE = '{"application.id": "app", "log": "module.db", "commit.interval.ms": "1"}'


def test_environment_overrides_files_and_the_command_line_overrides_the_environment(
    config: Callable[..., StreamsConfig],
) -> None:
    assert config(MODULE).commit_interval_ms == 1
    assert config(MODULE, file="commit.interval.ms=2").commit_interval_ms == 2
    variables = {"PENSTOCK_SET_COMMIT_INTERVAL_MS": "3", "PENSTOCK_SET_APPLICATION_ID": "env"}
    found = config(MODULE, file="commit.interval.ms=2", variables=variables)
    assert (found.commit_interval_ms, found.application_id) == (3, "env")
    found = config(
        MODULE, file="commit.interval.ms=2", variables=variables,
        settings=(("commit.interval.ms", "4"),), application_id="option",
    )
    assert (found.commit_interval_ms, found.application_id) == (4, "option")


@pytest.mark.parametrize("module", [
    MODULE, 'StreamsConfig(application_id="app", log="module.db")',
])
def test_bootstrap_servers_of_the_environment_replace_the_log_of_files(
    config: Callable[..., StreamsConfig], module: str
) -> None:
    variables = {"PENSTOCK_SET_BOOTSTRAP_SERVERS": "broker:9092"}
    assert config(module, file="log=file.db").log == "file.db"
    assert config(module, file="log=file.db", variables=variables).log == "kafka://broker:9092"
    found = config(module, file="log=file.db", variables=variables, log="option.db")
    assert found.log == "option.db"


def test_misspelled_variable_is_refused(config: Callable[..., StreamsConfig]) -> None:
    with pytest.raises(Exception, match=r"Did you mean 'commit\.interval\.ms'\?"):
        config(MODULE, variables={"PENSTOCK_SET_COMIT_INTERVAL_MS": "3"})


def test_secrets_of_the_environment_are_not_printed(
    command: Command, log: Log, path: Path, tmp_path: Path
) -> None:
    log.create_topic("shouts")
    (tmp_path / "environment_app.py").write_text(BUILDER)
    log.close()
    variables = {
        **os.environ, "PENSTOCK_LOG": str(path), "PENSTOCK_SET_SASL_PASSWORD": SECRET,
        "PENSTOCK_SET_SSL_KEY_PASSWORD": SECRET, "PENSTOCK_SET_APPLICATION_ID": "shout",
    }
    for extra in ((), ("--set", "commit.interval.ms=no")):
        process = command(
            "run", tmp_path / "environment_app.py", "--once", "--master", "inline", "--verbose",
            "--log-level", "debug", "--debug", "--state-dir", tmp_path / "state", *extra,
            env=variables,
        )
        out, err = process.communicate(timeout=120)
        assert process.returncode == bool(extra), err
        assert SECRET.encode() not in out + err
        assert (b"stopped after" in err) != bool(extra)
