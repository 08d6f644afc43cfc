"""Use: kernels from a database while a stage is compiled."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from pipeline.executor.schedules import machine as machines
from pipeline.executor.schedules.anchors import Fused
from pipeline.executor.schedules.tiled.packing import Layout
from pipeline.executor.tuning import layouts, workload
from pipeline.executor.tuning.database import Database, Key


class Tuned:
    """Takes the schedules that were measured to be faster than the rule.

    Parameters
    ----------
    database : Database
    only : collection of Key, optional
        Take these alone, whatever their times are.
    """

    def __init__(self, database: Database, only: Collection[Key] | None = None) -> None:
        self._database, self._only = database, only

    @staticmethod
    def load(path: str | Path) -> Tuned:
        """Return what the database at `path` has; see `Database.load` for what it raises."""
        return Tuned(Database.load(path))

    def for_stage(self, target: Any, cores: int) -> Found:
        """Return what there is for so many cores of a target."""
        return Found(self, target, cores)

    def text(self, key: Key) -> str | None:
        """Return a schedule that is to be used, as JSON."""
        record = self._database.get(key)
        if record is None or record.trace is None:
            return None
        takes = record.faster if self._only is None else key in self._only
        return record.trace if takes else None


class Found:
    """Choices for one target; see `Choices`."""

    def __init__(self, tuned: Tuned, target: Any, cores: int) -> None:
        self._tuned, self._target, self._cores = tuned, target, cores
        self._machine = machines.of(target)

    def layout(self, form: Layout) -> Layout:
        """Return the layout to take in place of a rule's."""
        text = self._tuned.text(workload.key_of_layout(form, self._target, self._cores))
        return form if text is None else layouts.read(text, form, self._machine)

    def kernel(self, _: str, function: Any, anchor: Fused | None) -> Any | None:
        """Return a function scheduled, or None; a rule's own kernel follows its layout."""
        if anchor is not None:
            return None
        text = self._tuned.text(workload.key_of(function, self._target, self._cores))
        return None if text is None else workload.scheduled(function, text)
