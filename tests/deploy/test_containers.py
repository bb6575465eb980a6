"""The Dockerfiles, the entry point and the compose file, without a container runtime."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from deploy.commands import ROOT, parse_command, settings_of, unknown_settings
from penstock.broker.jars import VERSION as KAFKA_VERSION
from penstock.cli.project import project_files
from penstock.cli.topology_loader import load_target
from penstock.java import OLDEST_JAVA

ENTRYPOINT = ROOT / "deploy" / "docker" / "entrypoint.sh"
COMPOSE = ROOT / "deploy" / "compose.yaml"
PROJECT = "store-revenue"
RELEASE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
USER_ID = "10001"


class Instruction(NamedTuple):
    """A line of a Dockerfile, with its continuation lines."""

    name: str
    value: str


def instructions(text: str) -> list[Instruction]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [Instruction(name, value) for name, value in found]


OWN = instructions((ROOT / "Dockerfile").read_text(encoding="utf-8"))
OF_PROJECT = instructions(project_files(PROJECT)["Dockerfile"])
both = pytest.mark.parametrize("dockerfile", [OWN, OF_PROJECT], ids=["penstock", "project"])


def values(dockerfile: list[Instruction], name: str) -> list[str]:
    return [each.value for each in dockerfile if each.name == name]


@both
def test_instructions_are_those_that_docker_knows(dockerfile: list[Instruction]) -> None:
    # ADD would unpack archives and read addresses; a shell form does not receive signals.
    allowed = {"ARG", "FROM", "RUN", "WORKDIR", "COPY", "USER", "ENTRYPOINT", "CMD"}
    assert {each.name for each in dockerfile} <= allowed
    for name in ("ENTRYPOINT", "CMD"):
        for value in values(dockerfile, name):
            assert isinstance(json.loads(value), list)


@both
def test_image_runs_as_a_user_with_a_numeric_id_that_is_not_root(
    dockerfile: list[Instruction],
) -> None:
    assert values(dockerfile, "USER")[-1] == USER_ID
    last_user = max(at for at, each in enumerate(dockerfile) if each.name == "USER")
    assert {each.name for each in dockerfile[last_user + 1:]} <= {"ENTRYPOINT", "CMD"}


@both
def test_base_images_have_a_version(dockerfile: list[Instruction]) -> None:
    arguments = dict(value.split("=", 1) for value in values(dockerfile, "ARG"))
    for value in values(dockerfile, "FROM"):
        image = re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], value.split()[0])
        name, _, tag = image.partition(":")
        assert name
        assert tag not in {"", "latest"}, value


@both
def test_package_managers_leave_no_caches(dockerfile: list[Instruction]) -> None:
    for value in values(dockerfile, "RUN"):
        for command in re.findall(r"\bpip (?:install|wheel)\b.*?(?:&&|$)", value):
            assert "--no-cache-dir" in command
        if "apt-get install" in value:
            assert "--yes --no-install-recommends" in value
            assert "rm -rf /var/lib/apt/lists/*" in value
            assert "apt-get update" in value


def test_python_and_java_are_those_that_penstock_needs() -> None:
    (base,) = [value for value in values(OWN, "ARG") if value.startswith("BASE=")]
    found = re.search(r"python:(\d\.\d+)-slim-bookworm", base)
    assert found is not None
    assert RELEASE["requires-python"] == f">={found[1]}"
    assert f"openjdk-{OLDEST_JAVA}-jre-headless" in " ".join(values(OWN, "RUN"))
    (extras,) = [value for value in values(OWN, "ARG") if value.startswith("EXTRAS=")]
    assert set(extras.removeprefix("EXTRAS=").split(",")) <= RELEASE["optional-dependencies"].keys()


@both
def test_commands_of_penstock_are_accepted(dockerfile: list[Instruction]) -> None:
    commands = [json.loads(value) for value in values(dockerfile, "CMD")]
    for value in values(dockerfile, "RUN"):
        commands += [
            shlex.split(part) for part in re.split(r"&&", value)
            if part.strip().startswith("penstock ")
        ]
    assert commands
    for command in commands:
        if command != ["penstock", "--help"]:
            parse_command(command)


@pytest.mark.parametrize("own", [True, False], ids=["penstock", "project"])
def test_copied_files_exist_and_are_sent_to_the_builder(own: bool) -> None:
    files = project_files(PROJECT)
    dockerfile, ignored = (
        (OWN, (ROOT / ".dockerignore").read_text(encoding="utf-8")) if own
        else (OF_PROJECT, files[".dockerignore"])
    )
    included = [line[1:] for line in ignored.splitlines() if line.startswith("!")]
    sources = [
        source for value in values(dockerfile, "COPY") if "--from=" not in value
        for source in [part for part in value.split() if not part.startswith("--")][:-1]
    ]
    assert len(sources) > 2
    for source in sources:
        exists = (
            (ROOT / source).exists() if own
            else any(path == source or path.startswith(f"{source}/") for path in files)
        )
        assert exists, source
        assert any(source == each or source.startswith(f"{each}/") for each in included), source


def test_image_of_a_project_is_based_on_the_image_of_this_version() -> None:
    assert values(OF_PROJECT, "ARG") == [f"PENSTOCK_IMAGE=penstock:{RELEASE['version']}"]
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert f"docker build --tag penstock:{RELEASE['version']} ." in text


def run_entrypoint(
    tmp_path: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the entry point with a `java` that prints its arguments, one on each line."""
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    path = os.pathsep.join((str(tmp_path), os.path.dirname(sys.executable), os.environ["PATH"]))
    return subprocess.run(
        ["bash", str(ENTRYPOINT), *arguments], capture_output=True, text=True, check=False,
        timeout=120, env={**os.environ, "PATH": path, **variables},
    )


def test_entry_point_runs_a_command(tmp_path: Path) -> None:
    ran = run_entrypoint(tmp_path, "sh", "-c", 'echo "$0 $1"; exit 7', "a b", "c")
    assert (ran.returncode, ran.stdout) == (7, "a b c\n")


EXECUTOR = {
    "SPARK_EXECUTOR_MEMORY": "512m", "SPARK_DRIVER_URL": "spark://driver:7078",
    "SPARK_EXECUTOR_ID": "3", "SPARK_EXECUTOR_CORES": "2", "SPARK_APPLICATION_ID": "app-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7", "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "pod-3",
}


def test_entry_point_starts_an_executor(tmp_path: Path) -> None:
    pyspark = pytest.importorskip("pyspark")
    options = {f"SPARK_JAVA_OPT_{number}": f"-Doption={number}" for number in range(11)}
    ran = run_entrypoint(
        tmp_path, "executor", **EXECUTOR, **options, SPARK_CONF_DIR="/etc/spark"
    )
    assert ran.returncode == 0, ran.stderr
    jars = Path(pyspark.__file__).parent / "jars"
    backend = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    assert ran.stdout.splitlines() == [
        *options.values(), "-Xms512m", "-Xmx512m", "-cp", f"/etc/spark:{jars}/*", backend,
        "--driver-url", "spark://driver:7078", "--executor-id", "3", "--cores", "2",
        "--app-id", "app-1", "--hostname", "10.0.0.7", "--resourceProfileId", "0",
        "--podName", "pod-3",
    ]
    (jar,) = jars.glob("spark-kubernetes_*.jar")
    with zipfile.ZipFile(jar) as archive:
        members = archive.namelist()
        constants = b"".join(archive.read(each) for each in members if "Constants" in each)
    assert f"{backend.replace('.', '/')}.class" in members
    # Spark still passes what the entry point reads.
    for name in (*EXECUTOR, "SPARK_JAVA_OPT_"):
        assert name.encode() in constants, name


def test_entry_point_fails_for_an_executor_without_its_variables(tmp_path: Path) -> None:
    ran = run_entrypoint(tmp_path, "executor")
    assert ran.returncode != 0
    assert "SPARK_EXECUTOR_MEMORY" in ran.stderr


def services() -> dict[str, Any]:
    document = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    assert document.keys() == {"services", "volumes"}
    found: dict[str, Any] = document["services"]
    return found


def test_compose_starts_the_kafka_that_penstock_is_tested_with() -> None:
    kafka = services()["kafka"]
    assert kafka["image"] == f"apache/kafka:{KAFKA_VERSION}"
    settings = kafka["environment"]
    listeners = dict(each.split("://") for each in settings["KAFKA_LISTENERS"].split(","))
    advertised = dict(
        each.split("://") for each in settings["KAFKA_ADVERTISED_LISTENERS"].split(",")
    )
    protocols = dict(
        each.split(":") for each in settings["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")
    )
    assert listeners.keys() == protocols.keys()
    assert advertised.keys() == listeners.keys() - {settings["KAFKA_CONTROLLER_LISTENER_NAMES"]}
    for name, address in advertised.items():
        assert address.endswith(listeners[name])
    # Quoted, because compose refuses numbers as values of variables in some versions.
    assert {type(value) for value in settings.values()} == {str}


def test_application_of_compose_is_accepted_and_finds_kafka(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = services()["words"]
    args = parse_command(service["command"])
    assert service["image"] == f"penstock:{RELEASE['version']}"
    assert (ROOT / "deploy" / service["build"]).resolve() == ROOT
    settings = settings_of(service["environment"])
    assert unknown_settings(settings) == []
    advertised = services()["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert settings["bootstrap.servers"] in advertised
    mount = next(each for each in service["volumes"] if service["working_dir"] in each)
    folder = (ROOT / "deploy" / mount.split(":")[0]).resolve()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert load_target(args.target).name == "build"
    assert f"{args.state_dir}" in {each.split(":")[1] for each in service["volumes"]}
    assert service["ports"] == [f"127.0.0.1:{args.serve.port}:{args.serve.port}"]
    # Other containers reach it by the name of the service.
    assert settings["application.server"] == f"words:{args.serve.port}"
    # Listening on more than loopback needs a token.
    assert args.serve.host == "0.0.0.0"
    assert service["environment"]["PENSTOCK_TOKEN"].startswith("${PENSTOCK_TOKEN:?")
    assert f"http://localhost:{args.serve.port}/ready" in service["healthcheck"]["test"][-1]


def test_volumes_of_compose_are_declared() -> None:
    declared = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["volumes"].keys()
    used = {
        each.split(":")[0] for service in services().values() for each in service["volumes"]
    }
    assert {each for each in used if not each.startswith(".")} == declared
