"""The source records of a task's outputs, for error messages of the tasks that receive them."""

from __future__ import annotations

from penstock.record import CurrentRecord, PartitionColumns


class OutputOrigins:
    """Notes the source record of each output. Native code appends to the lists as well.

    `indexes[n]` is the index of the source record of output n in its columns. `marks` holds
    (n, columns) for every output n whose columns are others than those of the output before.
    """

    __slots__ = ("indexes", "marks")

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.marks: list[tuple[int, PartitionColumns]] = []

    def note(self, current: CurrentRecord) -> None:
        """Note the current record for the output that was written last."""
        rows = current.rows
        if not self.marks or self.marks[-1][1] is not rows:
            self.marks.append((len(self.indexes), rows))
        self.indexes.append(current.at)

    def take(self) -> OutputOrigins:
        """Return the notes and start again."""
        taken = OutputOrigins()
        taken.indexes, taken.marks = list(self.indexes), list(self.marks)
        self.indexes.clear()
        self.marks.clear()
        return taken

    def stretches(self) -> list[tuple[PartitionColumns, list[int]]]:
        """Return the columns and the indexes of consecutive outputs with the same columns."""
        ends = [*(first for first, _ in self.marks), len(self.indexes)][1:]
        return [
            (rows, self.indexes[first:end])
            for (first, rows), end in zip(self.marks, ends, strict=True)
        ]
