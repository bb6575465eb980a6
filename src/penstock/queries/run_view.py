"""`RunView`: how the queries of an instance see its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.engine.plan.task_records import TaskRecord
from penstock.log.types import TopicPartition
from penstock.record import TaskId


class RunState(NamedTuple):
    """The state of an instance at a moment."""

    #: Whether this instance runs the tasks, and its lease has not expired.
    is_active: bool
    #: Changes when the replicas of this host may be behind the last commit.
    version: object
    #: Whether they are behind after every commit of this instance (`RunView.commits`), too.
    lags_commits: bool = False
    #: The state of the instance, for messages.
    name: str = "RUNNING"
    #: The instance that runs the application, if it is another one.
    holder: str | None = None
    #: Whether the stores are restored, so that they can be read. A standby is always ready.
    is_ready: bool = True


@dataclass(frozen=True, slots=True)
class RunView:
    """How a `ReplicaSource` sees its instance."""

    #: Returns the current state.
    state: Callable[[], RunState]
    #: Raises unless the instance has started and not ended; see `StoreSource.check_running`.
    check_running: Callable[[bool], None]
    #: Counts the commits of this instance.
    commits: Callable[[], int] = lambda: 0
    #: The last commit of a task by this instance; None if there is none.
    known_record: Callable[[TaskId], TaskRecord | None] = lambda task_id: None
    #: Input partition -> the next offset, as this instance has committed it; None if it runs no
    #: tasks.
    known_offsets: Callable[[], Mapping[TopicPartition, int] | None] = lambda: None
