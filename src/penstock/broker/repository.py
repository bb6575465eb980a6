"""Selects the Maven repository to download from and configures Ivy for it.

In this order: the environment variable `PENSTOCK_MAVEN_REPOSITORY`, a mirror of Maven Central in
`~/.m2/settings.xml`, Maven Central (Ivy's default).
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


def repository_url(environment: Mapping[str, str] | None = None, home: Path | None = None) -> str:
    """Return the URL of the repository; empty for Maven Central."""
    override = (os.environ if environment is None else environment).get(VARIABLE, "").strip()
    if override:
        return override
    return _mirror_url((Path.home() if home is None else home) / ".m2" / "settings.xml")


def ivy_settings(url: str) -> str:
    """Return the text of an `ivysettings.xml` for the repository."""
    if not url:
        return _SETTINGS.format(root="")
    if not url.endswith("/"):
        url += "/"
    return _SETTINGS.format(root=f" root={quoteattr(url)}")


def _mirror_url(settings: Path) -> str:
    """Return the mirror of Maven Central that Maven would use; empty if none is configured."""
    try:
        root = ElementTree.parse(settings).getroot()
    except (OSError, ElementTree.ParseError):
        return ""
    for mirror in root.iter():
        if _local_name(mirror) != "mirror":
            continue
        parts = {_local_name(child): (child.text or "").strip() for child in mirror}
        if parts.get("blocked") != "true" and _mirrors_central(parts.get("mirrorOf", "")):
            return parts.get("url", "")
    return ""


def _local_name(element: ElementTree.Element) -> str:
    """Return the tag without its namespace, which is optional in Maven's settings."""
    return element.tag.rsplit("}", 1)[-1]


def _mirrors_central(mirror_of: str) -> bool:
    patterns = [pattern.strip() for pattern in mirror_of.split(",")]
    if "!central" in patterns:
        return False
    return any(pattern in {"*", "central", "external:*"} for pattern in patterns)
