"""Every code block of the documentation is run by a test, or is listed with the reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from docs.pages import (
    DOCS,
    ELSEWHERE,
    LANGUAGES,
    LOGGING_SCRIPTS,
    NOT_RUN,
    OTHER_LANGUAGES,
    OTHER_SCRIPTS,
    README,
    ROOT,
    SCRIPTS,
    WALKTHROUGHS,
    Block,
    blocks,
)

PAGES = [README, *sorted(DOCS.rglob("*.md"))]


def all_blocks() -> Iterator[tuple[str, Block]]:
    for page in PAGES:
        for block in blocks(page):
            yield page.name, block


def is_python(text: str) -> bool:
    """Whether a block is Python code, not only a word or a number that Python could read."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return False
    return any(not isinstance(each, ast.Expr | ast.AnnAssign) for each in body)


def test_every_block_is_run_or_listed() -> None:
    by_construction = {(page, "python") for page in SCRIPTS + LOGGING_SCRIPTS + OTHER_SCRIPTS}
    by_construction |= {(page, name) for page in WALKTHROUGHS for name in ("python", "console")}
    found = [
        (page, block) for page, block in all_blocks()
        if block.language in LANGUAGES and (page, block.language) not in by_construction
    ]
    listed = {(page, block.text.partition("\n")[0]) for page, block in found} & set(NOT_RUN)
    assert listed == set(NOT_RUN)
    run = [
        (page, block.language) for page, block in found
        if (page, block.text.partition("\n")[0]) not in NOT_RUN
    ]
    assert {key: run.count(key) for key in run} == {
        key: each.number for key, each in ELSEWHERE.items()
    }


def test_listed_pages_have_code_and_listed_tests_exist() -> None:
    with_code = {page for page, block in all_blocks() if block.language == "python"}
    with_commands = {page for page, block in all_blocks() if block.language == "console"}
    assert {*SCRIPTS, *LOGGING_SCRIPTS, *OTHER_SCRIPTS} <= with_code
    assert set(WALKTHROUGHS) <= with_code | with_commands
    for each in ELSEWHERE.values():
        file, _, name = each.test.partition("::")
        assert f"\ndef {name}(" in (ROOT / file).read_text(encoding="utf-8"), each.test


def test_blocks_name_their_language() -> None:
    assert {block.language for _, block in all_blocks()} <= {*LANGUAGES, *OTHER_LANGUAGES}
    assert [
        (page, block.line) for page, block in all_blocks()
        if not block.language and is_python(block.text)
    ] == []
    # `py` marks the code of other libraries, which is not run.
    assert {page for page, block in all_blocks() if block.language == "py"} == {
        "from-faust.md", "from-structured-streaming.md",
    }
