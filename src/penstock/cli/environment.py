"""Settings from environment variables, for containers: `PENSTOCK_SET_COMMIT_INTERVAL_MS=1000`.

The rule is that of Kafka's container images: one underscore stands for a dot, two for an underscore
and three for a dash. A name in capitals is the setting in lower case. Any other name keeps its
letters: `PENSTOCK_SET_spark_executor_memoryOverhead`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.cli.errors import UsageError

PREFIX = "PENSTOCK_SET_"
_CHARACTERS = {1: ".", 2: "_", 3: "-"}
_UNDERSCORES = re.compile("_+")


def environment_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that the variables contain, by their names in Kafka.

    Errors name the variables and never their values, which may be secret.
    """
    variable_of: dict[str, str] = {}
    for variable in sorted(variables):
        if not variable.startswith(PREFIX):
            continue
        name = setting_name(variable)
        if name in variable_of:
            raise UsageError(
                f"The environment variables {variable_of[name]} and {variable} both set "
                f"'{name}'. Unset one of them."
            )
        variable_of[name] = variable
    return {name: variables[variable] for name, variable in variable_of.items()}


def setting_name(variable: str) -> str:
    """Return the name of the setting that a variable contains."""
    rest = variable.removeprefix(PREFIX)
    runs = [len(run) for run in _UNDERSCORES.findall(rest)]
    if not rest.strip("_") or rest[0] == "_" or rest[-1] == "_" or max(runs, default=1) > 3:
        raise UsageError(
            f"The environment variable {variable} does not name a setting. "
            f"Write {PREFIX}COMMIT_INTERVAL_MS for commit.interval.ms, for example."
        )
    name = _UNDERSCORES.sub(lambda found: _CHARACTERS[len(found[0])], rest)
    return name.lower() if rest == rest.upper() else name
