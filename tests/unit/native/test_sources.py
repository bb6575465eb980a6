"""The extension is used only if it was built from the C sources beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import native
from penstock.native._sources import sources_checksum

needs_core = pytest.mark.skipif(native.core is None, reason=f"penstock runs {native.in_use()}")


def test_changed_renamed_and_added_sources_change_the_checksum(tmp_path: Path) -> None:
    (tmp_path / "one.c").write_text("int one;")
    (tmp_path / "core.h").write_text("extern int one;")
    seen = {sources_checksum(str(tmp_path))}
    (tmp_path / "one.c").write_text("int two;")
    seen.add(sources_checksum(str(tmp_path)))
    (tmp_path / "one.c").rename(tmp_path / "two.c")
    seen.add(sources_checksum(str(tmp_path)))
    (tmp_path / "three.c").touch()
    seen.add(sources_checksum(str(tmp_path)))
    assert len(seen) == 4


def test_folder_without_c_sources_has_no_checksum(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").touch()
    assert sources_checksum(str(tmp_path)) is None


@needs_core
def test_extension_of_other_sources_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "sources_checksum", lambda folder: "0-0")
    assert native._extension() == (
        None, "the extension was built from other sources: run `make install`"
    )


@needs_core
def test_extension_without_c_sources_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "sources_checksum", lambda folder: None)
    assert native._extension() == (native.core, "")
