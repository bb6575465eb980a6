"""The metrics of an application in Prometheus' text format.

A metric of Kafka Streams `process-total` of the group `stream-thread-metrics` with the tag
`thread-id` becomes `penstock_stream_thread_process_total{thread_id="..."}`. A metric whose value is
a string becomes an information metric: `penstock_stream_state_info{value="RUNNING"} 1`. Only the
names of counters end in `_total`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from penstock.metrics import MetricName

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Texts of many lines, which `GET /topology` returns.
_LEFT_OUT = frozenset(("topology-description",))
#: Kafka names these like totals, but they also shrink.
_GAUGES = frozenset(("cache-size-bytes-total", "restore-remaining-records-total"))
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_]+")

Labels = tuple[tuple[str, str], ...]


class _Family:
    """The samples of one name."""

    def __init__(self, name: str, kind: str, help_text: str) -> None:
        self._head = f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"
        self._name = name
        self.samples: dict[Labels, float | int] = {}

    def __str__(self) -> str:
        return self._head + "".join(
            f"{self._name}{_format_labels(labels)} {_number(value)}\n"
            for labels, value in self.samples.items()
        )


def exposition(metrics: Mapping[MetricName, float | int | str]) -> str:
    """Return all metrics, those of one name together, ordered by name."""
    families: dict[str, _Family] = {}
    for metric, value in metrics.items():
        if metric.name in _LEFT_OUT:
            continue
        is_text = isinstance(value, str)
        name = _family_name(metric, is_text=is_text)
        family = families.get(name)
        if family is None:
            kind = "counter" if is_counter(metric.name) and not is_text else "gauge"
            text = f"{metric.name} of {metric.group}, see docs/metrics.md of penstock."
            escaped = text.replace("\\", r"\\").replace("\n", r"\n")
            family = families[name] = _Family(name, kind, escaped)
        labels = tuple((_legal(tag), content) for tag, content in metric.tags)
        if isinstance(value, str):
            family.samples[*labels, ("value", value)] = 1
        else:
            family.samples[labels] = value
    return "".join(str(families[name]) for name in sorted(families))


def _family_name(metric: MetricName, *, is_text: bool) -> str:
    group = _legal(metric.group.removesuffix("-metrics"))
    name = _legal(metric.name.removesuffix("-total") if metric.name in _GAUGES else metric.name)
    return f"penstock_{group}_{name}{'_info' if is_text else ''}"


def is_counter(name: str) -> bool:
    """Return whether a metric with this name of Kafka only grows."""
    return name.endswith("-total") and name not in _GAUGES


def _format_labels(labels: Labels) -> str:
    text = ",".join(f'{label}="{_escape(content)}"' for label, content in labels)
    return f"{{{text}}}" if text else ""


def _legal(name: str) -> str:
    legal = _ILLEGAL.sub("_", name)
    return f"_{legal}" if legal[:1].isdigit() else legal


def _escape(content: str) -> str:
    return content.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float | int) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    return repr(value)
