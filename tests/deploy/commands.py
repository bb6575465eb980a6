"""Checks of command lines and settings, with the parser and the configuration of penstock."""

from __future__ import annotations

import argparse
import functools
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from penstock import StreamsConfig
from penstock.cli.environment import PREFIX, environment_settings
from penstock.cli.main import build_parser
from penstock.cli.parsing import LOG_CONFIG_VARIABLE, LOG_VARIABLE
from penstock.cli.serve_options import TOKEN_VARIABLE
from penstock.setting_effects import CONNECTION_PREFIXES, CONNECTION_SETTINGS, OTHER_SETTINGS

ROOT = Path(__file__).resolve().parents[2]
#: Variables of penstock that are no settings.
VARIABLES = {LOG_VARIABLE, LOG_CONFIG_VARIABLE, TOKEN_VARIABLE}
#: The jars of PySpark that define the names of settings.
_JARS = (
    "spark-common-utils_", "spark-core_", "spark-kubernetes_", "spark-launcher_", "spark-yarn_",
)
#: The classes in them that contain the names.
_DEFINING = re.compile(r"onf|Constants|Launcher|/Client|SparkContext")
#: Names that Spark composes at run time, and names in which users choose a part: the name of a
#: volume, of an environment variable. Only the prefix is a constant.
_OPEN_PREFIXES = (
    "spark.kubernetes.authenticate.executor", "spark.kubernetes.authenticate.driver",
    "spark.kubernetes.executor.volumes.", "spark.kubernetes.driverEnv.", "spark.executorEnv.",
    "spark.yarn.appMasterEnv.",
)


def parse_command(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse `penstock ...`. The parser exits for a command line that it does not accept."""
    assert arguments[0].rpartition("/")[2] == "penstock", arguments
    return build_parser().parse_args(list(arguments[1:]))


def unknown_settings(names: Iterable[str]) -> list[str]:
    """The names that neither penstock nor Spark reads."""
    return sorted(
        name for name in names
        if not (_is_spark_setting(name) if name.startswith("spark.") else _is_setting(name))
    )


def _is_setting(name: str) -> bool:
    own = {field.name.replace("_", ".") for field in fields(StreamsConfig)} - {"extra"}
    return (
        name in own | OTHER_SETTINGS | CONNECTION_SETTINGS.keys()
        or name.startswith(CONNECTION_PREFIXES)
    )


def _is_spark_setting(name: str) -> bool:
    prefix = next((each for each in _OPEN_PREFIXES if name.startswith(each)), None)
    # The classes of Spark contain the names of settings and prefixes as constants.
    return (prefix or name) in _spark_names()


@functools.cache
def _spark_names() -> frozenset[str]:
    import pyspark

    found: set[str] = set()
    for jar in Path(pyspark.__file__).parent.joinpath("jars").glob("spark-*.jar"):
        if not jar.name.startswith(_JARS):
            continue
        with zipfile.ZipFile(jar) as archive:
            for member in archive.namelist():
                if _DEFINING.search(member):
                    found |= _constants(archive.read(member))
    return frozenset(found)


def _constants(data: bytes) -> set[str]:
    """The strings of a class file that start with `spark.`; each has its length before it."""
    found, at = set(), data.find(b"spark.")
    while at >= 0:
        length = int.from_bytes(data[at - 2:at], "big")
        found.add(data[at:at + length].decode("latin-1"))
        at = data.find(b"spark.", at + 1)
    return found


def settings_of(variables: Mapping[str, str]) -> dict[str, str]:
    """The settings in environment variables. Other variables of penstock must exist."""
    unknown = {
        name for name in variables
        if name.startswith("PENSTOCK_") and not name.startswith(PREFIX)
    } - VARIABLES
    assert unknown == set()
    return environment_settings(variables)
