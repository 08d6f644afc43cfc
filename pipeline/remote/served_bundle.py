"""Served bundle: a whole pipeline as one remote program, one round trip."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.remote.device_threads import TimedOutputs
from pipeline.system.threads import start_in_thread

BUNDLE = "bundle"
"""Name of a bundle in place of a kind of device."""

CHANGING = "changing"
"""Version of a frame during which another version came."""


@dataclass(frozen=True)
class BundleVersion:
    """Client's stand-in for the code of a remote bundle."""

    checksum: str
    """Checksum of its manifest; empty if it was never saved."""


@dataclass(frozen=True)
class OfferedBundle:
    """Bundle on a server."""

    plan: Plan
    """Plan of its first version."""
    compute: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
    """Returns the outputs for a frame's inputs, both in the plan's order; called by several threads."""
    version: Callable[[], str] = str
    """Returns the checksum of the manifest of the bundle that runs now; empty if it was never saved."""

    @property
    def slots(self) -> int:
        """Concurrent frames of its stages."""
        return sum(stage.replicas for stage in self.plan.stages)

    def misfit(self, stage: StagePlan) -> str:
        """Explain a mismatch with a client's request, empty without."""
        for title, offered, requested in (
            ("inputs", self.plan.inputs, stage.inputs),
            ("outputs", self.plan.outputs, stage.outputs),
        ):
            # Extents may vary; frames are checked one by one.
            if list(map(_kind, offered)) != list(map(_kind, requested)):
                return f"its {title} are {', '.join(map(str, offered))}, not {', '.join(map(str, requested))}"
        return ""


class ServedBundle:
    """Session's view of the bundle, one frame at a time.

    `stage`: the client's, for what it sends.
    """

    def __init__(self, bundle: OfferedBundle, stage: StagePlan) -> None:
        self._bundle, self.stage = bundle, stage

    @property
    def version(self) -> str:
        """Checksum of the current bundle's manifest."""
        return self._bundle.version()

    def run(self, inputs: Sequence[np.ndarray]) -> Future[TimedOutputs]:
        """Run one frame, queued like all others."""
        return start_in_thread(lambda: self._run(inputs), "frame of a client")

    def _run(self, inputs: Sequence[np.ndarray]) -> TimedOutputs:
        begin = time.perf_counter()
        outputs = list(self._bundle.compute(inputs))
        return TimedOutputs(outputs, time.perf_counter() - begin)


def _kind(spec: TensorSpec) -> tuple[str, str, int]:
    return spec.name, spec.dtype, len(spec.shape)
