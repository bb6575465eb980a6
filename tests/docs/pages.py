"""The code blocks of README.md and docs/, and the tests that run them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
#: The languages whose blocks are run.
LANGUAGES = ("python", "console", "sh", "javascript")
#: The languages of other blocks: `py` is code of another library.
OTHER_LANGUAGES = ("", "java", "properties", "py", "yaml")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A code block of a page."""

    language: str
    text: str
    #: The number of its first line in the page.
    line: int


def blocks(page: Path, *languages: str) -> list[Block]:
    """Return the blocks of a page in these languages, or all of them."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start(2)) + 1)
        for found in _BLOCK.finditer(text)
        if not languages or found[1] in languages
    ]


def script(page: Path) -> str:
    """Return the Python blocks of a page as one file, with the same line numbers."""
    file = ""
    for block in blocks(page, "python"):
        file += "\n" * (block.line - 1 - file.count("\n")) + block.text
    return file


#: Pages whose Python blocks are one script, which prints nothing.
SCRIPTS = (
    "README.md", "clients.md", "dashboard.md", "from-faust.md", "from-kafka-streams.md",
    "from-structured-streaming.md", "joining.md", "joins.md", "queries.md", "running.md",
    "streams-and-tables.md", "tour.md", "windows.md",
)
#: The same, but the code logs errors and dropped records.
LOGGING_SCRIPTS = ("testing.md", "time.md")
#: Scripts that need Spark or optional packages have tests of their own.
OTHER_SCRIPTS = ("serdes.md", "spark-data.md")
#: Pages whose Python blocks start with the name of the file that they belong to, and whose commands
#: are run in order.
WALKTHROUGHS = (
    "tutorial.md", "error-handling.md", "evolving.md", "going-live.md", "late-data.md",
)


class Elsewhere(NamedTuple):
    """The test that runs all blocks of a page in one language."""

    test: str
    #: How many blocks it runs.
    number: int


ELSEWHERE = {
    ("README.md", "console"): Elsewhere(
        "tests/docs/test_readme.py::test_readme_commands_print_the_shown_output", 1),
    ("cli.md", "console"): Elsewhere(
        "tests/cli/test_docs.py::test_commands_print_the_documented_output", 17),
    ("deployment.md", "sh"): Elsewhere(
        "tests/deploy/test_deployment_page.py::test_every_command_of_penstock_is_accepted", 7),
    ("kafka.md", "console"): Elsewhere(
        "tests/kafka/test_docs.py::test_commands_print_the_documented_output", 1),
    ("kafka.md", "python"): Elsewhere(
        "tests/kafka/test_security.py::test_code_of_the_page_connects", 2),
    ("metrics.md", "sh"): Elsewhere(
        "tests/docs/test_commands.py::test_metrics_are_served_and_sent", 2),
    ("operating.md", "sh"): Elsewhere(
        "tests/docs/test_commands.py::test_commands_of_the_operating_page_run", 2),
    ("rest.md", "console"): Elsewhere(
        "tests/docs/test_rest.py::test_commands_print_the_documented_output", 1),
    ("rest.md", "javascript"): Elsewhere(
        "tests/docs/test_rest.py::test_script_follows_changes_with_a_token", 1),
    ("rest.md", "python"): Elsewhere(
        "tests/docs/test_rest.py::test_application_with_its_own_routes_serves_both", 2),
    ("security.md", "sh"): Elsewhere(
        "tests/docs/test_commands.py::test_command_of_the_security_page_is_accepted", 1),
}
#: The first line of each block that no test runs, and the reason.
NOT_RUN = {
    ("installation.md", "git clone <this repository> penstock"):
        "downloads packages; `make wheels` installs penstock in an empty environment",
    ("kafka.md", 'kafka() { java -cp "$(penstock broker fetch)/lib/*" "$@" --bootstrap-server '
     "127.0.0.1:9092 2>/dev/null; }"): "tests/kafka/test_java_tools.py runs the same tools",
    ("tutorial.md", "git clone <this repository> penstock"): "downloads packages, as above",
    ("tutorial.md", "penstock run shop.py --dashboard 8080"):
        "runs until it is stopped; tests/web has the tests of the dashboard",
    ("tutorial.md", "penstock run shop.py --log kafka://127.0.0.1:9092 --create-topics 2"):
        "runs until it is stopped; docs/kafka.md runs an application on a broker",
}
