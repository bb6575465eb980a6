r"""Reads the public API of Kafka Streams from its jars, with `javap`.

A member is a public method, the name of a constructor's class (`new`), or a constant of an enum.
Deprecated members and classes, packages named `internals` and the methods of `Object` are left out.

Run it to write the committed list again:

    python tests/compatibility/java_api.py kafka-streams-4.3.0.jar kafka-clients-4.3.0.jar \
        kafka-streams-test-utils-4.3.0.jar
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

LISTED = Path(__file__).with_name("kafka-streams-4.3.0.txt")
STREAMS = "org/apache/kafka/streams/"
SERIALIZATION = "org/apache/kafka/common/serialization/"
#: The classes outside of Kafka Streams that its API consists of, too.
_SERIALIZATION = {
    f"{SERIALIZATION}{name}.class" for name in ("Serde", "Serdes", "Serializer", "Deserializer")
}

_NOT_API = {"equals", "hashCode", "toString", "values", "valueOf", "ordinal", "compareTo"}
_PUBLIC_CLASS = re.compile(r"^public (?:\w+ )*(?:class|interface) ", re.MULTILINE)
_MEMBER = re.compile(r"^  public (?P<declared>[^=\n]*);$", re.MULTILINE)
_METHOD = re.compile(r"(?P<name>[\w.$]+)\(")


def public_members(jar: Path) -> dict[str, tuple[str, ...]]:
    """Return class -> its members, both without the common package."""
    with zipfile.ZipFile(jar) as archive:
        names = sorted(
            name.removesuffix(".class") for name in archive.namelist()
            if name in _SERIALIZATION
            or (name.startswith(STREAMS) and name.endswith(".class") and "internals" not in name)
        )
    printed = subprocess.run(
        ["javap", "-public", "-verbose", "-classpath", str(jar), *names],
        capture_output=True, text=True, check=True,
    ).stdout
    texts = printed.split("\nClassfile ")
    return {
        name.removeprefix(STREAMS).replace(SERIALIZATION, "serialization.").replace("/", ".")
        .replace("$", "."): members
        for name, text in zip(names, texts, strict=True)
        if (members := _members(name, text)) is not None
    }


def _members(name: str, text: str) -> tuple[str, ...] | None:
    """Return the members in the text that javap printed; None if the class is not public API."""
    head, _, body = text.partition("\n{\n")
    body, _, attributes = body.partition("\n}\n")
    if not _PUBLIC_CLASS.search(head) or re.search("^Deprecated: true", attributes, re.MULTILINE):
        return None
    found = dict.fromkeys(
        member for declared, details in _declarations(body)
        if "    Deprecated: true" not in details and "ACC_BRIDGE" not in details
        and "ACC_SYNTHETIC" not in details
        for member in (_member(name, declared, "ACC_ENUM" in details),) if member is not None
    )
    return tuple(sorted(found))


def _declarations(body: str) -> list[tuple[str, str]]:
    marks = list(_MEMBER.finditer(body))
    ends = [mark.start() for mark in marks[1:]] + [len(body)] * bool(marks)
    return [
        (mark["declared"], body[mark.end():end]) for mark, end in zip(marks, ends, strict=True)
    ]


def _member(name: str, declared: str, is_enum_constant: bool) -> str | None:
    method = _METHOD.search(declared)
    if method is None:
        return declared.rpartition(" ")[2] if is_enum_constant else None
    called = method["name"]
    if called == name.replace("/", "."):
        return "new"
    return None if called in _NOT_API else called


def read_list(path: Path = LISTED) -> dict[str, tuple[str, ...]]:
    """Return the committed list: class -> its members."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = (line.partition(":") for line in lines if line and not line.startswith("#"))
    return {name: tuple(members.split()) for name, _, members in rows}


def main() -> None:
    """Write the committed list from the jars."""
    members: dict[str, tuple[str, ...]] = {}
    for jar in sys.argv[1:]:
        members |= public_members(Path(jar))
    lines = ["# The public API of Kafka Streams 4.3.0 without deprecated members, see java_api.py"]
    lines += [f"{name}: {' '.join(found)}".rstrip() for name, found in sorted(members.items())]
    LISTED.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
