"""A kind of log: the form of its addresses, how to open it, and its capabilities."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.extras import explain_missing_extra

if TYPE_CHECKING:
    from penstock.log.base import Log

#: Separates the scheme of an address from the rest.
SEPARATOR = "://"


@dataclass(frozen=True, kw_only=True, slots=True)
class LogCapabilities:
    """The differences between logs that callers depend on."""

    #: The log is a service. Processes on other hosts can open its address, several processes write
    #: faster than one, and reading back costs a request.
    is_remote: bool
    #: The log uses the settings of connections and security (`open_log(connection=...)`).
    takes_connection_settings: bool
    #: The log deletes the committed offsets of a group that is idle for a long time.
    expires_offsets: bool
    #: The log reports removed tombstones (`PartitionOffsets.tombstones_removed_to`).
    reports_tombstones: bool
    #: The log applies retention and compaction itself; `Log.clean` does not.
    cleans_itself: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class LogScheme:
    """One entry of the registry. Importing it must not import the packages that the log needs."""

    #: The part of an address before `://`; empty for paths.
    name: str
    #: The name of this kind of log, for messages.
    title: str
    #: The form of an address, for messages.
    address_form: str
    #: "module:function"; imported by the first `open`. Called with the address and the options.
    opener: str
    capabilities: LogCapabilities
    #: Returns whether a log may exist at an address, without a connection to it.
    may_exist: Callable[[str], bool] = lambda address: True
    #: Returns advice about an address that was probably meant for this scheme, otherwise None.
    advise: Callable[[str], str | None] = lambda address: None
    #: Returns the settings, by their names in an application, that have no effect in this kind of
    #: log, each with the reason.
    ignored_settings: Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]] = (
        lambda settings: ()
    )

    def load(self) -> Callable[[str, Mapping[str, Any]], Log]:
        """Import the packages that the log needs. A missing one is reported with its extra."""
        with explain_missing_extra():
            opener: Callable[[str, Mapping[str, Any]], Log] = pkgutil.resolve_name(self.opener)
        return opener

    def open(self, address: str, options: Mapping[str, Any]) -> Log:
        """Open a log. An unknown option raises `TypeError` or `ConfigException`."""
        return self.load()(address, options)
