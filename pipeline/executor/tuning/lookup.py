"""TuningLookup: database kernels at stage compilation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pipeline.executor.kernels import microarchitecture
from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.executor.tuning import layouts, workload
from pipeline.executor.tuning.database import Database, TuningKey


class TuningLookup:
    """Applies schedules measured faster than the rule.

    `only`: take these alone, whatever their times are.
    """

    def __init__(self, database: Database, only: Collection[TuningKey] | None = None) -> None:
        self._database, self._only = database, only

    @staticmethod
    def load(path: str | Path) -> TuningLookup:
        """Load the choices at `path`; raises as `Database.load`."""
        return TuningLookup(Database.load(path))

    def for_stage(self, target: Any, cores: int) -> TunedChoices:
        """Return the choices for a target and core count."""
        return TunedChoices(self, target, cores)

    def text(self, key: TuningKey) -> str | None:
        """Return an applicable schedule as JSON."""
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
        """Return the layout in place of a rule's."""
        text = self._lookup.text(workload.key_of_layout(form, self._target, self._cores))
        return form if text is None else layouts.read(text, form, self._cpu)

    def kernel(self, _: str, function: Any, group: FusedGroup | None) -> Any | None:
        """Return a scheduled function, or None; kernels follow their layout."""
        if group is not None:
            return None
        text = self._lookup.text(workload.key_of(function, self._target, self._cores))
        return None if text is None else workload.apply_schedule(function, text)

    def rename(self, names: Mapping[str, str]) -> None:
        """Keep nothing by name."""
