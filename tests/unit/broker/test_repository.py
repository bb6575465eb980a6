from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker.repository import VARIABLE, ivy_settings, repository_url

SETTINGS = """<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors>
<mirror><id>no</id><mirrorOf>external:http:*</mirrorOf><url>http://blocked/</url></mirror>
<mirror><id>yes</id><mirrorOf>{of}</mirrorOf><url>https://mirror.example/maven?a=1&amp;b=2</url></mirror>
</mirrors></settings>"""
MIRROR = "https://mirror.example/maven?a=1&b=2"


def test_default_is_maven_central(tmp_path: Path) -> None:
    assert repository_url({}, tmp_path) == ""
    assert "root" not in ivy_settings("")


@pytest.mark.parametrize(
    ("of", "found"),
    [("*", MIRROR), ("central", MIRROR), ("external:*,!internal", MIRROR), ("*,!central", ""),
     ("internal", "")],
)
def test_mirror_of_central_in_the_maven_settings_is_used(
    tmp_path: Path, of: str, found: str
) -> None:
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(SETTINGS.format(of=of))
    assert repository_url({}, tmp_path) == found


def test_variable_overrides_the_maven_settings_and_is_escaped(tmp_path: Path) -> None:
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(SETTINGS.format(of="*"))
    assert repository_url({VARIABLE: " file:///maven "}, tmp_path) == "file:///maven"
    assert 'root="https://mirror.example/maven?a=1&amp;b=2/"' in ivy_settings(MIRROR)


def test_invalid_maven_settings_are_ignored(tmp_path: Path) -> None:
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text("<settings>")
    assert repository_url({}, tmp_path) == ""
