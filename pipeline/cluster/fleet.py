"""Fleet: one bundle's replicas on a cluster, and their frame pool."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from pipeline.cluster.bundle_parts import BundleParts
from pipeline.cluster.ray_access import load_ray
from pipeline.cluster.replica import ReplicaOrder, ReplicaReply
from pipeline.cluster.replica_endpoint import ReplicaEndpoint
from pipeline.cluster.replica_notes import ReplicaNotes
from pipeline.cluster.replica_session import ReplicaSession, ReplicaTerms
from pipeline.cluster.requirement import Requirement
from pipeline.core.board.board import Device
from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.errors import RemoteError
from pipeline.executor.devices.base import NumberedRuntime
from pipeline.executor.devices.null import NullRuntime
from pipeline.remote.pool import Pool
from pipeline.remote.pool_device import PoolCandidate
from pipeline.remote.pool_members import Member


@dataclass(frozen=True)
class FleetOptions:
    """How frames are handed to replicas."""

    retry: int = 0
    """Further attempts for a frame whose replica was lost; it may then be computed twice."""
    in_flight: int = 0
    """Frames that a replica may have at once, rounded up to an even number; 0 for twice as many as its stages work on,
    so that others are on their way."""
    timeout: float = 5.0
    """Seconds without a sign of life after which a replica counts as lost."""
    patience: float = 120.0
    """Seconds that frames wait while there is no replica; also for the first one."""


@dataclass(frozen=True)
class ReplicaStatistics:
    """One replica."""

    number: int
    process: int
    """Identifier of its process on its node, 0 before it has answered."""
    is_ready: bool
    """True if it takes frames."""
    in_use: int
    """Frames that it has."""
    frames: int
    """Frames that it has answered."""
    losses: int
    """Losses in the middle of a frame."""
    reason: str = ""
    """Reason for taking no frames."""


class Fleet:
    """Replicas sharing a stream's frames.

    `places`: frames that a replica may have at once.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - made in one place
        self,
        plan: Plan,
        parts: BundleParts,
        order: ReplicaOrder,
        requirement: Requirement,
        options: FleetOptions,
        notes: ReplicaNotes,
    ) -> None:
        # As the dispatcher has it: for each frame that is computed another one is on its way.
        slots = -(-options.in_flight // 2) or sum(stage.replicas for stage in plan.stages)
        self.places = 2 * slots
        self.options, self.notes, self._parts = options, notes, parts
        self._terms = ReplicaTerms(
            order, requirement, slots, self.places, options.timeout, plan.outputs, self._put_parts
        )
        self._references: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._numbers = 0
        self._pool = Pool([])
        self._leaving: list[threading.Thread] = []

    def __len__(self) -> int:
        return len(self._pool.members)

    def resize(self, count: int) -> None:
        """Change the number of replicas; leaving ones finish their frames."""
        with self._lock:
            while len(self) < count:
                self._pool.add(ReplicaEndpoint(self._numbers, self._terms))
                self._numbers += 1
            # Those first that take no frames, then the newest.
            members = sorted(self._pool.members, key=lambda member: (member.error is None, -_number(member)))
            for member in members[: len(self) - count]:
                self._dismiss(member)

    def statistics(self) -> tuple[ReplicaStatistics, ...]:
        """Return the replicas' statistics."""
        return tuple(map(_describe, list(self._pool.members)))

    def runtime(self, device: Device) -> FleetRuntime:
        """Return a device backed by the fleet."""
        return FleetRuntime(device, self, self._pool)

    def close(self) -> None:
        """End all replicas."""
        members = list(self._pool.members)
        self._pool.close()
        for member in members:
            _endpoint(member).end()
        for thread in self._leaving:
            thread.join(self.options.timeout)

    def _dismiss(self, member: Member) -> None:
        self._pool.remove(member)

        def end() -> None:
            self._pool.wait_unused(member)
            _endpoint(member).end()

        thread = threading.Thread(target=end, name=f"end of {member.endpoint}", daemon=True)
        self._leaving = [leaver for leaver in self._leaving if leaver.is_alive()] + [thread]
        thread.start()

    def _put_parts(self) -> Mapping[str, Any]:
        """Put the bundle into the object store, for one fetch per node."""
        with self._lock:
            if not self._references:
                put = load_ray().put
                self._references = {name: put(array) for name, array in self._parts.files.items()}
            return self._references


class FleetRuntime(NullRuntime, NumberedRuntime):
    """Device backed by a fleet; a worker has one frame there."""

    def __init__(self, device: Device, fleet: Fleet, pool: Pool) -> None:
        super().__init__(device)
        self._notes = fleet.notes
        self._stages: list[tuple[StagePlan, Any]] = []
        options = fleet.options
        self.opening_s = options.patience
        self._candidate = PoolCandidate(
            lambda: contextlib.nullcontext(pool),
            self._stages,
            patience=options.patience,
            timeout=options.patience,
            attempts=options.retry + 1,
        )

    def open(self, cores: Sequence[int]) -> None:
        """Let the thread go where the system likes."""

    def load(self, stage: StagePlan, code: Any) -> int:
        """Wait for the first replica; frames of every size share it."""
        self._stages[:] = [(stage, code)]
        self._candidate.prepare()
        return 0

    def run(self, program: int, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:  # noqa: ARG002 - there is one
        """Run one frame on the least busy replica."""
        reply, number, offset_s = self._candidate.call(lambda session: _run_frame(session.connection, inputs))
        outcome = reply.outcome
        self._notes.add(self.frame_number, number, outcome.events, offset_s)
        if outcome.error:
            raise RemoteError(f"replica {number}: {outcome.error}")
        return outcome.arrays

    def break_off(self) -> None:
        """Fail the call waiting for a replica."""
        self._candidate.break_off()

    def close(self) -> None:
        """End the sessions."""
        self._candidate.close()


def _run_frame(session: Any, inputs: Sequence[np.ndarray]) -> tuple[ReplicaReply, int, float]:
    connection: ReplicaSession = session
    reply, offset_s = connection.run_frame(inputs)
    return reply, connection.state.number, offset_s


def _endpoint(member: Member) -> ReplicaEndpoint:
    # A fleet's pool has no others.
    return cast("ReplicaEndpoint", member.endpoint)


def _number(member: Member) -> int:
    return _endpoint(member).state.number


def _describe(member: Member) -> ReplicaStatistics:
    state, error = _endpoint(member).state, member.error
    return ReplicaStatistics(
        state.number,
        state.ready.process,
        error is None,
        member.in_use,
        state.frames,
        state.losses,
        "" if error is None else str(error),
    )
