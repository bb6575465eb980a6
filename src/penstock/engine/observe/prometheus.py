"""The metrics of an application in Prometheus' text format.

A metric of Kafka Streams `process-total` of the group `stream-thread-metrics` with the tag
`thread-id` becomes `penstock_stream_thread_process_total{thread_id="..."}`. A metric whose value is
a string becomes an information metric: `penstock_stream_state_info{value="RUNNING"} 1`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from penstock.metrics import MetricName

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Texts of many lines, which `GET /topology` returns.
_LEFT_OUT = frozenset(("topology-description",))
#: Kafka names these like totals, but they also shrink.
_GAUGES = frozenset(("cache-size-bytes-total", "restore-remaining-records-total"))
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_]+")

_GAUGE_ENDINGS = tuple(name.replace("-", "_") for name in _GAUGES)

Labels = tuple[tuple[str, str], ...]


def exposition(metrics: Mapping[MetricName, float | int | str]) -> str:
    """Return all metrics, those of one name together, ordered by name."""
    families: dict[str, dict[Labels, float | int]] = {}
    for metric, value in metrics.items():
        if metric.name in _LEFT_OUT:
            continue
        name = f"penstock_{_legal(metric.group.removesuffix('-metrics'))}_{_legal(metric.name)}"
        labels = tuple((_legal(tag), content) for tag, content in metric.tags)
        if isinstance(value, str):
            families.setdefault(f"{name}_info", {})[*labels, ("value", value)] = 1
        else:
            families.setdefault(name, {})[labels] = value
    return "".join(_family(name, families[name].items()) for name in sorted(families))


def is_counter(name: str) -> bool:
    """Return whether a metric with this name of Kafka only grows."""
    return name.endswith("-total") and name not in _GAUGES


def _family(name: str, samples: Iterable[tuple[Labels, float | int]]) -> str:
    is_total = name.endswith("_total") and not name.endswith(_GAUGE_ENDINGS)
    lines = [f"# TYPE {name} {'counter' if is_total else 'gauge'}"]
    for labels, value in samples:
        text = ",".join(f'{label}="{_escape(content)}"' for label, content in labels)
        lines.append(f"{name}{{{text}}} {_number(value)}" if text else f"{name} {_number(value)}")
    return "\n".join(lines) + "\n"


def _legal(name: str) -> str:
    legal = _ILLEGAL.sub("_", name)
    return f"_{legal}" if legal[:1].isdigit() else legal


def _escape(content: str) -> str:
    return content.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float | int) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    return repr(value)
