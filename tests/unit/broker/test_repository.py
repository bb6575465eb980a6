from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker.repository import VARIABLE, ivy_settings, repository

SETTINGS = """<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors>
<mirror><id>no</id><mirrorOf>external:http:*</mirrorOf><url>http://blocked/</url></mirror>
<mirror><id>yes</id><mirrorOf>{of}</mirrorOf><url>https://mirror.example/maven?a=1&amp;b=2</url></mirror>
</mirrors></settings>"""
MIRROR = "https://mirror.example/maven?a=1&b=2"


def test_without_any_word_it_is_ivy_that_chooses(tmp_path: Path) -> None:
    assert repository({}, tmp_path) == ""
    assert "root" not in ivy_settings("")


@pytest.mark.parametrize(
    ("of", "found"),
    [("*", MIRROR), ("central", MIRROR), ("external:*,!internal", MIRROR), ("*,!central", ""),
     ("internal", "")],
)
def test_a_mirror_of_central_in_mavens_settings_is_used(
    tmp_path: Path, of: str, found: str
) -> None:
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(SETTINGS.format(of=of))
    assert repository({}, tmp_path) == found


def test_the_variable_wins_and_is_written_as_xml(tmp_path: Path) -> None:
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(SETTINGS.format(of="*"))
    assert repository({VARIABLE: " file:///maven "}, tmp_path) == "file:///maven"
    assert 'root="https://mirror.example/maven?a=1&amp;b=2/"' in ivy_settings(MIRROR)


def test_settings_that_cannot_be_read_are_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text("<settings>")
    assert repository({}, tmp_path) == ""
