"""Adds the pages outside docs/ to the site, and adapts the links between pages for mkdocs.

Links are written for readers of the repository. In the site, a link to a file that is no page is
plain text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_LINK = re.compile(r"(?<!!)\[([^]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_IMAGE = re.compile(r"!\[([^]]*)\]\(([^)#\s]+)\)")
#: The start of a path -> the weight of its pages in the search. Guides come before the reference,
#: which mentions every term, and both before reasons and changes.
_WEIGHTS = {"decisions/": 0.05, "project/changelog": 0.2, "faults": 0.2, "reference/": 0.5}
_OUTSIDE = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/. mkdocs calls this."""
    docs = Path(config.docs_dir)
    for path in outside_pages(docs.parent):
        text = path.read_text(encoding="utf-8")
        files.append(File.generated(config, place(path, docs), content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the text of a page with adapted links. mkdocs calls this."""
    del files
    for start, weight in _WEIGHTS.items():
        if page.file.src_uri.startswith(start):
            page.meta["search"] = {"boost": weight}
    docs = Path(config.docs_dir)
    return adapted(markdown, source(page.file.src_uri, docs), docs)


def outside_pages(root: Path) -> list[Path]:
    """Return the pages of the repository that are not in docs/."""
    return [*(root / name for name in _OUTSIDE), *sorted(root.glob("examples/*/README.md"))]


def place(path: Path, docs: Path) -> str:
    """Return where the site has a file of the repository."""
    if path.is_relative_to(docs):
        return path.relative_to(docs).as_posix()
    relative = path.relative_to(docs.parent)
    return relative.as_posix() if len(relative.parts) > 1 else f"project/{relative.name.lower()}"


def source(place_in_site: str, docs: Path) -> Path:
    """Return the file of the repository that a page of the site shows."""
    pages = {place(path, docs): path for path in outside_pages(docs.parent)}
    return pages.get(place_in_site, docs / place_in_site)


def adapted(markdown: str, path: Path, docs: Path) -> str:
    """Return the text of a file with the links of its page."""
    pages = {*outside_pages(docs.parent), *docs.rglob("*.md")}
    folder = Path(place(path, docs)).parent

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found.groups(default="")
        file = Path(os.path.normpath(path.parent / target))
        if "://" in target or not file.exists():
            # Pages of the reference are generated. mkdocs reports all other missing files.
            return found[0]
        if file in pages or (file.is_relative_to(docs) and file.is_file()):
            return f"[{text}]({os.path.relpath(place(file, docs), folder)}{anchor})"
        return text

    def image(found: re.Match[str]) -> str:
        file = Path(os.path.normpath(path.parent / found[2]))
        return f"![{found[1]}]({os.path.relpath(place(file, docs), folder)})"

    return _LINK.sub(link, _IMAGE.sub(image, markdown))
