"""Flows: the one that new frames go through, and those that a swap has replaced and that still have to end."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic

from pipeline.scheduler.flow import Flow
from pipeline.scheduler.frame import Frame
from pipeline.scheduler.statistics import StageCounters


class Flows:
    """All flows of a pipeline; guarded by the ledger's lock where they change.

    Attributes
    ----------
    current : Flow
        The one that new frames go through.
    replaced : list of Flow
        Those that have frames in them still.
    retired : dict of str to StageCounters
        What the workers of former flows have counted, by stage.
    """

    current: Flow

    def __init__(self) -> None:
        self.replaced: list[Flow] = []
        self.retired: dict[str, StageCounters] = {}
        # Empty, but their workers may not have ended yet.
        self._ending: list[Flow] = []

    def swap(self, fresh: Flow) -> None:
        """Let new frames go through `fresh`."""
        self.replaced.append(self.current)
        self.current = fresh

    def retire(self, frames: Iterable[Frame]) -> None:
        """End the replaced flows that none of `frames`, which are all there are, goes through."""
        used = {frame.flow for frame in frames}
        for flow in [flow for flow in self.replaced if flow not in used]:
            flow.shut()
            for name, counters in flow.counters.items():
                self.retired.setdefault(name, StageCounters()).absorb(counters)
            self.replaced.remove(flow)
            self._ending = [each for each in self._ending if not each.join(0.0)] + [flow]

    def all(self) -> list[Flow]:
        """Return those whose workers may not have ended."""
        return [self.current, *self.replaced, *self._ending]

    def counters(self, stage: str) -> list[StageCounters]:
        """Return what has been counted for a stage, by all workers that it ever had."""
        retired = [self.retired[stage]] if stage in self.retired else []
        return retired + [each for flow in (*self.replaced, self.current) for each in flow.counters.get(stage, ())]

    def shut(self) -> None:
        """Let all workers end."""
        for flow in self.all():
            flow.shut()

    def join(self, deadline: float | None) -> bool:
        """Wait for the workers' end until `time.monotonic` is `deadline`, and return whether they have ended."""
        return all(flow.join(deadline) for flow in self.all())

    def busy(self, timeout: float) -> list[str]:
        """Return the names of the stages whose workers, also those given up, do not end within `timeout` seconds."""
        deadline = monotonic() + timeout
        workers = [worker for flow in self.all() for worker in (*flow.workers, *flow.given_up)]
        return [each.post.stage.name for each in workers if not each.join(max(0.0, deadline - monotonic()))]
