"""Use: kernels from a database while a stage is compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.executor.tuning import workload
from pipeline.executor.tuning.database import Database, Key


class Tuned:
    """Takes the schedules that were measured to be faster than the rule.

    Parameters
    ----------
    database : Database
    only : Key, optional
        Take this one alone, whatever its times are.
    """

    def __init__(self, database: Database, only: Key | None = None) -> None:
        self._database, self._only = database, only

    @staticmethod
    def load(path: str | Path) -> Tuned:
        """Return what the database at `path` has; see `Database.load` for what it raises."""
        return Tuned(Database.load(path))

    def for_stage(self, target: Any, cores: int) -> Callable[[str, Any], Any]:
        """Return a function from a kernel's name and function to the scheduled function, or None."""

        def found(_: str, function: Any) -> Any:
            key = workload.key_of(function, target, cores)
            record = self._database.get(key)
            if record is None or record.trace is None:
                return None
            return workload.scheduled(function, record.trace) if self._takes(key, record.faster) else None

        return found

    def _takes(self, key: Key, faster: bool) -> bool:
        return faster if self._only is None else key == self._only
