"""`StoreLayout`: how rows are stored, so that they can be read without a topology."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.serdes.builtin import Serdes
from penstock.stores.api.builder import StoreBuilder
from penstock.stores.api.suppliers import (
    KeyValueSupplier,
    SessionSupplier,
    Supplier,
    VersionedSupplier,
    WindowSupplier,
)
from penstock.stores.bytes.value_formats import (
    HEADERS,
    PLAIN,
    SESSION_HEADERS,
    TIMESTAMPED,
    ValueFormat,
)

_FORMATS: dict[str, ValueFormat] = {
    each.name: each for each in (PLAIN, TIMESTAMPED, HEADERS, SESSION_HEADERS)
}
_SUPPLIERS: dict[str, type] = {
    kind.__name__: kind
    for kind in (KeyValueSupplier, VersionedSupplier, WindowSupplier, SessionSupplier)
}


class StoreLayout(msgspec.Struct, frozen=True):
    """The kind of a store, and the fields of its supplier."""

    kind: str
    supplier: str
    fields: dict[str, int | bool | str | None]
    #: The names of the serdes of keys and values.
    serdes: tuple[str, str] = ("", "")


def layout_of(builder: Any, serdes: tuple[str, str]) -> StoreLayout | None:
    """Return the layout of a store that keeps its rows in a replica; None for others."""
    supplier = getattr(builder, "supplier", None)
    if supplier is None or not builder.keeps_rows:
        return None
    names = [name for name in type(supplier).__dataclass_fields__ if name not in {"name", "rows"}]
    values = {name: getattr(supplier, name) for name in names}
    if "format" in values:
        values["format"] = values["format"].name
    return StoreLayout(builder.kind, type(supplier).__name__, values, serdes)


def raw_builder(name: str, layout: StoreLayout) -> StoreBuilder:
    """Return the builder of a store with this layout whose keys and values are bytes."""
    fields: dict[str, Any] = dict(layout.fields)
    if "format" in fields:
        fields["format"] = _FORMATS[fields["format"]]
    if "max_entries" in fields:
        # A reader must not change the order of use.
        fields["max_entries"] = None
    supplier: Supplier = _SUPPLIERS[layout.supplier](name=name, **fields)
    serde = Serdes.bytes()
    return StoreBuilder(name, layout.kind, supplier, serde, serde, logging_enabled=False)
