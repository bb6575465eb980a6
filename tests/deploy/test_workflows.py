"""The GitHub workflows run the targets of `.ci/run`, and the issue forms are valid."""

from __future__ import annotations

import re
import runpy
import shlex
import tomllib
from typing import Any

import pytest
import yaml

from deploy.commands import ROOT, unknown_settings
from penstock.java import OLDEST_JAVA

GITHUB = ROOT / ".github"
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSIONS: tuple[str, ...] = runpy.run_path(str(ROOT / "tests/packaging/wheels.py"))["VERSIONS"]


def read(name: str) -> dict[Any, Any]:
    document: dict[Any, Any] = yaml.safe_load((GITHUB / name).read_text(encoding="utf-8"))
    return document


def prerequisites(target: str) -> set[str]:
    found = re.search(rf"^{target}:(.*)$", MAKEFILE, re.MULTILINE)
    assert found is not None
    return set(found[1].split())


def steps(job: dict[str, Any], action: str) -> list[dict[str, Any]]:
    return [step for step in job["steps"] if step.get("uses", "").startswith(f"actions/{action}@")]


def test_workflow_runs_the_targets_of_the_local_script() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    job = read("workflows/ci.yml")["jobs"]["make"]
    assert re.findall(r"^make (.*)$", script, re.MULTILINE) == ["ci"]
    assert set(job["strategy"]["matrix"]["target"]) == prerequisites("ci")
    (command,) = [step["run"] for step in job["steps"] if "run" in step]
    words = shlex.split(command.replace("${{ matrix.target }}", "TARGET"))
    assert words == ["make", "TARGET", f"PYTHON=python{VERSIONS[0]}"]
    assert "PYTHON ?= python3" in MAKEFILE
    exported = re.search(r"^export PENSTOCK_STRICT_BUILD=(.*)$", script, re.MULTILINE)
    assert exported is not None
    assert job["env"] == {"PENSTOCK_STRICT_BUILD": exported[1]}


def test_workflow_has_the_versions_that_penstock_supports() -> None:
    job = read("workflows/ci.yml")["jobs"]["make"]
    (java,) = steps(job, "setup-java")
    assert java["with"]["java-version"] == str(OLDEST_JAVA)
    (python,) = steps(job, "setup-python")
    assert sorted(python["with"]["python-version"].split()) == list(VERSIONS)
    assert python["with"]["cache"] == "pip"
    (cache,) = steps(job, "cache")
    for file in re.findall(r"'([^']+)'", cache["with"]["key"]):
        assert (ROOT / file).is_file()


def test_release_wheels_are_built_for_the_versions_that_are_tested() -> None:
    settings = PROJECT["tool"]["cibuildwheel"]
    assert settings["build"] == [f"cp{version.replace('.', '')}-*" for version in VERSIONS]
    classifiers = PROJECT["project"]["classifiers"]
    for version in VERSIONS:
        assert f"Programming Language :: Python :: {version}" in classifiers
    script = re.fullmatch(r"python \{project\}/(\S+)", settings["test-command"])
    assert script is not None
    assert (ROOT / script[1]).is_file()
    matrix = read("workflows/wheels.yml")["jobs"]["wheels"]["strategy"]["matrix"]["include"]
    assert [each["arch"] for each in matrix] == settings["linux"]["archs"]


@pytest.mark.parametrize("name", ["ci", "wheels"])
def test_workflow_is_complete_and_may_only_read(name: str) -> None:
    document = read(f"workflows/{name}.yml")
    # YAML 1.1 reads the key "on" as true.
    assert document[True]
    assert document["permissions"] == {"contents": "read"}
    for job in document["jobs"].values():
        assert {"runs-on", "steps", "timeout-minutes"} <= job.keys()
        assert steps(job, "checkout")
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            if "uses" in step:
                assert re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_issue_form_is_valid(name: str) -> None:
    form = read(f"ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= form.keys()
    ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert ids
    assert len(ids) == len(set(ids))
    for part in form["body"]:
        assert part["type"] in {"markdown", "textarea", "dropdown"}
        assert part["attributes"]["value" if part["type"] == "markdown" else "label"]


def test_pull_request_template_names_targets_that_exist() -> None:
    text = (GITHUB / "pull_request_template.md").read_text(encoding="utf-8")
    targets = re.findall(r"`make ([\w-]+)`", text)
    assert targets
    for target in targets:
        prerequisites(target)


def test_settings_of_the_security_page_exist() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    names = re.findall(r"`(spark\.[\w.]+)`", text)
    assert len(names) == 2
    assert unknown_settings(names) == []
