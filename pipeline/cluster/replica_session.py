"""Replica session: calls to one actor, until answered or lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from pipeline.cluster.frame_pieces import LARGEST_FAR, LARGEST_NEAR, PIECE, count_pieces, cut_tensors, join_tensors
from pipeline.cluster.ray_access import load_ray, translate_errors
from pipeline.cluster.replica import ReplicaOrder, ReplicaReady, ReplicaReply, read_boot
from pipeline.cluster.requirement import Requirement
from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.errors import DeviceLost

LOOK_S = 0.5
"""Seconds until a call is looked at: whether anybody still wants it, and whether the replica is alive."""

NOBODY = ReplicaReady(0, "", "")
"""Reply of a replica before its first answer."""


@dataclass(frozen=True)
class ReplicaTerms:
    """Settings common to a bundle's replicas."""

    order: ReplicaOrder
    requirement: Requirement
    """Requirement of the node."""
    slots: int
    """Frames that a replica computes at once, each in another stage."""
    places: int
    """Frames that it may have."""
    timeout: float
    """Seconds without a sign of life after which it counts as lost."""
    outputs: Sequence[TensorSpec]
    references: Callable[[], Mapping[str, Any]]
    """Returns the bundle's files in the object store, put there when the first node asks for them."""


@dataclass
class ReplicaState:
    """Known state of a replica."""

    number: int
    ready: ReplicaReady = NOBODY
    """Message in which it said that it is ready."""
    frames: int = 0
    losses: int = 0
    """Frames that it has answered, and how often it was lost."""
    offset_s: float = 0.0
    shortest_s: float = float("inf")
    """Difference of this process's clock from that of the replica, and the time of the shortest answer, which gave
    it."""

    def renew(self, ready: ReplicaReady) -> None:
        """Update the state from a replica, possibly restarted."""
        if ready != self.ready:
            self.offset_s, self.shortest_s = 0.0, float("inf")
        self.ready = ready

    def note_clock(self, sent_s: float, reply: ReplicaReply, came_s: float) -> float:
        """Return this clock less the replica's, from sent and received times."""
        # Processes of one kernel have one clock.
        if self.ready.boot and self.ready.boot == read_boot():
            return 0.0
        on_way_s = (came_s - sent_s) - (reply.sent_s - reply.received_s)
        if on_way_s < self.shortest_s:
            # Half of it was the way there, as far as anybody can tell.
            self.offset_s = (sent_s - reply.received_s + came_s - reply.sent_s) / 2
            self.shortest_s = on_way_s
        return self.offset_s


class ReplicaSession:
    """Calls to one replica; a `RemoteSession`.

    `restart` ends the actor, so that Ray starts it again; `prepare` lets it load its bundle.
    """

    def __init__(
        self,
        actor: Any,
        terms: ReplicaTerms,
        state: ReplicaState,
        *,
        restart: Callable[[], None],
        prepare: Callable[[], object],
    ) -> None:
        self.state, self._actor, self._terms = state, actor, terms
        self._restart, self._prepare = restart, prepare
        self._is_broken_off = False
        # On one node both sides have one object store.
        is_near = state.ready.node == str(load_ray().get_runtime_context().get_node_id())
        self._largest = LARGEST_NEAR if is_near else LARGEST_FAR
        self._output_pieces = count_pieces(terms.outputs)

    def __str__(self) -> str:
        return f"replica {self.state.number}"

    def open(self, stage: StagePlan, code: Any) -> int:  # noqa: ARG002 - the replica has all stages
        """Return the number of the whole bundle."""
        return 0

    def run(self, program: int, stage: StagePlan, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Run one frame."""
        return self.run_timed(program, stage, arrays)[0]

    def run_timed(
        self,
        program: int,  # noqa: ARG002 - a replica has one
        stage: StagePlan,  # noqa: ARG002
        arrays: Sequence[np.ndarray],
    ) -> tuple[Sequence[np.ndarray], float]:
        """Run one frame, with its seconds there."""
        reply, _ = self.run_frame(arrays)
        return reply.outcome.arrays, reply.sent_s - reply.received_s

    def run_frame(self, arrays: Sequence[np.ndarray]) -> tuple[ReplicaReply, float]:
        """Run one frame, or raise `DeviceLost`; return its reply and the clocks' difference."""
        try:
            with translate_errors(str(self)):
                sent_s = perf_counter()
                reply = self._call(arrays)
                came_s = perf_counter()
        except DeviceLost:
            self.state.losses += 1
            raise
        self.state.frames += 1
        return reply, self.state.note_clock(sent_s, reply, came_s)

    def usable(self) -> bool:
        """Return True: changes of the replica show with the next frame."""
        return True

    def break_off(self) -> None:
        """Fail a call waiting in another thread."""
        self._is_broken_off = True

    def close(self) -> None:
        """Do nothing: the actor is the fleet's."""

    def _call(self, arrays: Sequence[np.ndarray]) -> ReplicaReply:
        reply = self._send(arrays)
        if reply is None:
            # Ray has started the actor anew between two frames: this one was not begun.
            self._prepare()
            reply = self._send(arrays)
        if reply is None:
            raise DeviceLost(f"{self}: it is started again and again")
        return reply

    def _send(self, arrays: Sequence[np.ndarray]) -> ReplicaReply | None:
        sizes = [sum(array.nbytes for array in arrays), PIECE * self._output_pieces]
        if not PIECE < max(sizes) <= self._largest:
            unsplit: ReplicaReply | None = self._await(self._actor.run.remote(list(arrays)))
            return unsplit
        cut, outputs = cut_tensors(arrays), self._output_pieces
        references = self._actor.run_pieces.options(num_returns=1 + outputs).remote(cut.heads, outputs, *cut.pieces)
        reply: ReplicaReply | None
        reply, *pieces = self._await(references)
        if reply is not None and reply.heads:
            reply = reply._replace(outcome=reply.outcome._replace(arrays=join_tensors(reply.heads, pieces)))
        return reply

    def _await(self, reference: Any) -> Any:
        """Return the results of one or several references."""
        ray = load_ray()
        heard_s = monotonic()
        while True:
            try:
                return ray.get(reference, timeout=LOOK_S)
            except ray.exceptions.GetTimeoutError:  # noqa: PERF203 - after half a second
                if self._is_broken_off:
                    raise DeviceLost(f"{self}: its frame was given up") from None
                if monotonic() - heard_s >= self._terms.timeout:
                    self._ask_for_life(reference[0] if isinstance(reference, list) else reference)
                    heard_s = monotonic()

    def _ask_for_life(self, reference: Any) -> None:
        """Wait for a sign of life or the frame; stages may take any time."""
        ray, timeout = load_ray(), self._terms.timeout
        sign = self._actor.greet.remote()
        answers, _ = ray.wait([reference, sign], num_returns=1, timeout=timeout)
        if not answers:
            self._restart()
            raise DeviceLost(f"{self}: it has given no sign of life for {timeout:g} s")
        if sign in answers:
            ray.get(sign)
