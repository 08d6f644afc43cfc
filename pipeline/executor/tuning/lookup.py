"""TuningLookup: kernels from a database while a stage is compiled."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from pipeline.executor.kernels import microarchitecture
from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.executor.tuning import layouts, workload
from pipeline.executor.tuning.database import Database, TuningKey


class TuningLookup:
    """Takes the schedules that were measured to be faster than the rule.

    Parameters
    ----------
    database : Database
    only : collection of TuningKey, optional
        Take these alone, whatever their times are.
    """

    def __init__(self, database: Database, only: Collection[TuningKey] | None = None) -> None:
        self._database, self._only = database, only

    @staticmethod
    def load(path: str | Path) -> TuningLookup:
        """Return the choices of the database at `path`; see `Database.load` for what it raises."""
        return TuningLookup(Database.load(path))

    def for_stage(self, target: Any, cores: int) -> TunedChoices:
        """Return the choices for so many cores of a target."""
        return TunedChoices(self, target, cores)

    def text(self, key: TuningKey) -> str | None:
        """Return a schedule that is to be used, as JSON."""
        record = self._database.get(key)
        if record is None or record.trace is None:
            return None
        # A check builds with records that are not known to be faster yet.
        takes = record.faster if self._only is None else key in self._only
        return record.trace if takes else None


class TunedChoices:
    """Choices for one target; see `Choices`."""

    def __init__(self, lookup: TuningLookup, target: Any, cores: int) -> None:
        self._lookup, self._target, self._cores = lookup, target, cores
        self._cpu = microarchitecture.of_target(target)

    def layout(self, form: PackedLayout) -> PackedLayout:
        """Return the layout to take in place of a rule's."""
        text = self._lookup.text(workload.key_of_layout(form, self._target, self._cores))
        return form if text is None else layouts.read(text, form, self._cpu)

    def kernel(self, _: str, function: Any, group: FusedGroup | None) -> Any | None:
        """Return a function scheduled, or None; a kernel follows its layout."""
        if group is not None:
            return None
        text = self._lookup.text(workload.key_of(function, self._target, self._cores))
        return None if text is None else workload.apply_schedule(function, text)
