"""Which Maven repository this machine uses, in the words of Ivy.

In this order: the environment variable `PENSTOCK_MAVEN_REPOSITORY`; a mirror of Maven Central in
`~/.m2/settings.xml`; Maven Central, which is what Ivy uses by itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

VARIABLE = "PENSTOCK_MAVEN_REPOSITORY"

_SETTINGS = """<ivysettings>
  <settings defaultResolver="repository"/>
  <resolvers>
    <ibiblio name="repository" m2compatible="true"{root}/>
  </resolvers>
</ivysettings>
"""


def repository(environment: Mapping[str, str] | None = None, home: Path | None = None) -> str:
    """The address of the repository; empty for Maven Central."""
    given = (os.environ if environment is None else environment).get(VARIABLE, "").strip()
    if given:
        return given
    return _mirror((Path.home() if home is None else home) / ".m2" / "settings.xml")


def ivy_settings(address: str) -> str:
    """The text of an `ivysettings.xml` for the repository."""
    if not address:
        return _SETTINGS.format(root="")
    if not address.endswith("/"):
        address += "/"
    return _SETTINGS.format(root=f" root={quoteattr(address)}")


def _mirror(settings: Path) -> str:
    """The mirror of Maven Central that Maven itself would use; empty if there is none."""
    try:
        root = ElementTree.parse(settings).getroot()
    except (OSError, ElementTree.ParseError):
        return ""
    for mirror in root.iter():
        if _name(mirror) != "mirror":
            continue
        parts = {_name(child): (child.text or "").strip() for child in mirror}
        if parts.get("blocked") != "true" and _is_for_central(parts.get("mirrorOf", "")):
            return parts.get("url", "")
    return ""


def _name(element: ElementTree.Element) -> str:
    """A tag without its namespace, which some files have and some have not."""
    return element.tag.rsplit("}", 1)[-1]


def _is_for_central(mirror_of: str) -> bool:
    patterns = [pattern.strip() for pattern in mirror_of.split(",")]
    if "!central" in patterns:
        return False
    return any(pattern in {"*", "central", "external:*"} for pattern in patterns)
