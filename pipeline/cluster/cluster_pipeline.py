"""ClusterPipeline: a pipeline computed by replicas on a cluster."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pipeline.cluster.cluster_plan import DEVICE, ClusterBundle
from pipeline.cluster.fleet import Fleet, ReplicaStatistics
from pipeline.core import arguments
from pipeline.core.board.board import Device
from pipeline.errors import ArgumentError, PipelineError
from pipeline.executor import devices
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.scheduler.change import RunnableBundle
from pipeline.scheduler.pipeline import Pipeline
from pipeline.scheduler.statistics import Statistics

logger = logging.getLogger(__name__)

LOOK_S = 2.0
"""Seconds between two looks at the cluster's nodes, where the number of replicas follows them."""


class ClusterPipeline(Pipeline):
    """Bundle in replicas on a cluster; frames and ordered results pass here.

    It is used like any `Pipeline`.  `set_params` and `swap` are for pipelines of one machine.

    Parameters
    ----------
    arrange : callable
        Returns the plan with so many workers.
    fleet : Fleet
    membership : ExitStack
        Ends the fleet, and leaves the cluster.
    count : int
        Replicas at first.
    follow : callable, optional
        Returns how many there should be.
    **options
        Options of `Pipeline`.
    """

    def __init__(
        self,
        arrange: Callable[[int], ClusterBundle],
        fleet: Fleet,
        membership: contextlib.ExitStack,
        count: int,
        follow: Callable[[], int] | None = None,
        **options: Any,
    ) -> None:
        self._arrange, self._fleet, self._membership = arrange, fleet, membership
        self._ended = threading.Event()
        # Of two changes at once, the later one would swap workers that the earlier one has just brought.
        self._scaling = threading.Lock()
        self._follower: threading.Thread | None = None
        fleet.resize(count)
        super().__init__(arrange(count * fleet.places), create=self._create, **options)
        if follow is not None:
            self._follower = threading.Thread(
                target=self._live, args=(follow,), name="nodes of the cluster", daemon=True
            )
            self._follower.start()

    def scale(self, replicas: int) -> None:
        """Change the number of replicas for later frames, finishing current ones.

        Raises
        ------
        ArgumentError
            If it is no number of at least 1.
        PipelineClosed
            If the pipeline is closed.
        """
        count = arguments.count("replicas", replicas, 1)
        with self._scaling:
            if count == len(self._fleet):
                return
            # More replicas before their workers, and fewer after: nobody waits for one that is not there.
            if count > len(self._fleet):
                self._fleet.resize(count)
            super().swap(self._arrange(count * self._fleet.places))
            self._fleet.resize(count)

    @property
    def replicas(self) -> tuple[ReplicaStatistics, ...]:
        """Statistics of the replicas, with their rotation."""
        return self._fleet.statistics()

    def statistics(self) -> Statistics:
        """Return a snapshot: local stages, then the replicas' sums."""
        statistics = super().statistics()
        stages = self._fleet.notes.summarise(len(self._fleet), statistics.elapsed_s)
        return replace(statistics, stages=(*statistics.stages, *stages))

    def set_params(self, group: str, values: Mapping[str, Any]) -> None:  # noqa: ARG002 - none can be set
        """Refuse: replicas run a bundle as built."""
        raise ArgumentError("parameters cannot be set on a cluster; build the bundle with them, and load it again")

    def swap(self, bundle: RunnableBundle, **_: Any) -> None:  # noqa: ARG002 - none can be swapped
        """Refuse: replicas run their loaded bundle."""
        raise ArgumentError("a bundle cannot be swapped on a cluster; load the new one beside it, and close this")

    def close(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Close the pipeline, end the replicas and leave the cluster."""
        self._ended.set()
        super().close(drain=drain, timeout=timeout)
        # From a callback it only begins the end: frames that are in still need their replicas.
        if not self._engine.must_not_wait():
            if self._follower is not None and self._follower is not threading.current_thread():
                self._follower.join()
            self._membership.close()

    def _create(self, device: Device) -> DeviceRuntime:
        return self._fleet.runtime(device) if device.name == DEVICE else devices.create(device)

    def _live(self, follow: Callable[[], int]) -> None:
        """Follow the cluster's nodes, as they come and go."""
        while not self._ended.wait(LOOK_S):
            try:
                self.scale(max(1, follow()))
            except PipelineError as error:  # noqa: PERF203 - once in seconds
                if not self.closed:
                    logger.warning("the number of replicas stays as it is: %s", error)
