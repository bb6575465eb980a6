"""Commands, settings, files and paths on docs/deployment.md exist."""

from __future__ import annotations

import re
import shlex

from deploy.commands import ROOT, parse_command, unknown_settings
from penstock.cli.project import project_files

PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """The words of every command on the page."""
    text = re.sub(r"\\\n\s*", "", "".join(BLOCK.findall(PAGE)))
    return [
        shlex.split(part) for line in text.splitlines()
        for part in re.split(r" \| ", line) if part.strip()
    ]


def penstock_commands() -> list[list[str]]:
    found = []
    for words in commands():
        if words[0] == "spark-submit":
            # The arguments after the submitted file are those of penstock.
            at = next(at for at, word in enumerate(words) if "__main__" in word)
            found.append(["penstock", *words[at + 1:]])
        elif "penstock" in words and words[0] in {"penstock", "docker"}:
            found.append(words[words.index("penstock"):])
    return found


def test_every_command_of_penstock_is_accepted() -> None:
    names = [parse_command(words).prog for words in penstock_commands()]
    assert sorted(set(names)) == [
        "penstock consume", "penstock new", "penstock produce", "penstock run",
    ]
    assert names.count("penstock run") == 3


def test_every_topology_is_that_of_a_new_project() -> None:
    targets = {
        args.target for args in map(parse_command, penstock_commands()) if hasattr(args, "target")
    }
    assert targets == {"orders.topology"}
    assert "orders/topology.py" in project_files("orders")


def test_every_setting_exists() -> None:
    given = [
        words[at + 1].partition("=")[0] for words in commands() for at, word in enumerate(words)
        if word == "--conf"
    ]
    assert len(given) > 8
    named = re.findall(r"`((?:spark|commit|num|application|bootstrap)\.[\w.]+)`", PAGE)
    assert unknown_settings([*given, *named]) == []


def test_every_file_exists() -> None:
    files = set(re.findall(r"`((?:deploy/)[\w./-]+)`|--file (\S+)|--kustomize (\S+)", PAGE))
    paths = {path for group in files for path in group if path}
    assert {"deploy/compose.yaml", "deploy/kubernetes", "deploy/systemd/orders.service"} <= paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    for name in re.findall(r"^\| `(\w+\.yaml)` \|", PAGE, re.MULTILINE):
        assert (ROOT / "deploy" / "kubernetes" / name).is_file()


def test_paths_of_the_unit_are_those_of_the_page() -> None:
    unit = (ROOT / "deploy" / "systemd" / "orders.service").read_text(encoding="utf-8")
    for path in ("/srv/orders", "/etc/penstock/orders.properties", "/etc/penstock/orders.env"):
        assert f"`{path}`" in PAGE
        assert path in unit
