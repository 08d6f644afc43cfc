"""Served bundle: a whole pipeline that a server runs as one program, for one round trip per frame."""

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
"""What clients call it where others name a kind of device."""

CHANGING = "changing"
"""Version of a frame during which another version came."""


@dataclass(frozen=True)
class BundleVersion:
    """What a client has in place of the code of a bundle that runs elsewhere.

    Attributes
    ----------
    checksum : str
        Of its manifest; empty if it was never saved.
    """

    checksum: str


@dataclass(frozen=True)
class OfferedBundle:
    """The bundle that a server runs.

    Attributes
    ----------
    plan : Plan
        Of its first version.
    compute : callable
        Returns the outputs for a frame's inputs, both in the plan's order; called by several threads.
    version : callable
        Returns the checksum of the manifest of the bundle that runs now; empty if it was never saved.
    """

    plan: Plan
    compute: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
    version: Callable[[], str] = str

    @property
    def slots(self) -> int:
        """Frames that its stages work on at once."""
        return sum(stage.replicas for stage in self.plan.stages)

    def misfit(self, stage: StagePlan) -> str:
        """Return why it is not what a client asks for; empty if it is."""
        for title, own, others in (
            ("inputs", self.plan.inputs, stage.inputs),
            ("outputs", self.plan.outputs, stage.outputs),
        ):
            # Extents may vary; frames are checked one by one.
            if list(map(_kind, own)) != list(map(_kind, others)):
                return f"its {title} are {', '.join(map(str, own))}, not {', '.join(map(str, others))}"
        return ""


class ServedBundle:
    """The bundle as one session uses it, one frame at a time.

    Attributes
    ----------
    stage : StagePlan
        The client's, for what it sends.
    """

    def __init__(self, bundle: OfferedBundle, stage: StagePlan) -> None:
        self._bundle, self.stage = bundle, stage

    @property
    def version(self) -> str:
        """The checksum of the manifest of the bundle that runs now."""
        return self._bundle.version()

    def run(self, inputs: Sequence[np.ndarray]) -> Future[TimedOutputs]:
        """Run one frame; it waits at the entrance like all others."""
        return start_in_thread(lambda: self._run(inputs), "frame of a client")

    def _run(self, inputs: Sequence[np.ndarray]) -> TimedOutputs:
        begin = time.perf_counter()
        outputs = list(self._bundle.compute(inputs))
        return TimedOutputs(outputs, time.perf_counter() - begin)


def _kind(spec: TensorSpec) -> tuple[str, str, int]:
    return spec.name, spec.dtype, len(spec.shape)
