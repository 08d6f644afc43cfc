"""Replica: a bundle in a separate process, one frame per call."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from pipeline.cluster import bundle_parts, core_lease, frame_pieces
from pipeline.cluster.bundle_parts import BundleParts
from pipeline.cluster.ray_access import load_ray
from pipeline.core.plan.device_map import DeviceMap
from pipeline.errors import BundleError, PipelineError, describe_error
from pipeline.executor.bundle import Bundle
from pipeline.scheduler.frame_program import FrameOutcome, FrameProgram
from pipeline.system.version import VERSION

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""File with the same text in all processes of one running kernel, whose clocks are then one."""


@dataclass(frozen=True)
class ReplicaOrder:
    """Order for a replica's work."""

    digest: str
    devices: DeviceMap = field(default_factory=dict)
    """Devices in place of some of its plan's."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of its pipeline, such as ``supervision``."""
    version: str = VERSION
    """Version of this project, the same on both sides."""


class ReplicaReady(NamedTuple):
    """A replica takes frames."""

    process: int
    boot: str
    node: str


class ReplicaRefusal(NamedTuple):
    """Permanent refusal of a replica to run its bundle."""

    reason: str


class MissingBundle(NamedTuple):
    """A replica's node does not have the bundle."""

    digest: str


class ReplicaReply(NamedTuple):
    """Outcome of a frame with its times there; for pieces, the outputs' heads."""

    outcome: FrameOutcome
    received_s: float
    sent_s: float
    heads: Sequence[tuple[np.dtype, tuple[int, ...]]] = ()


class Replica:
    """A running bundle."""

    def __init__(self) -> None:
        self._calls: FrameProgram | None = None
        self._lease = core_lease.CoreLease()

    def prepare(
        self, order: ReplicaOrder, references: Mapping[str, Any] | None = None
    ) -> ReplicaReady | ReplicaRefusal | MissingBundle:
        """Load the bundle from here or from the call.

        `references`: the bundle's files in the cluster's object store.
        """
        if order.version != VERSION:
            return ReplicaRefusal(f"it has soc-pipeline {VERSION}, and the caller {order.version}; install the same")
        if self._calls is None:
            try:
                with bundle_parts.lock_bundle(order.digest):
                    bundle = _load(order, references)
                if bundle is None:
                    return MissingBundle(order.digest)
                self._calls = self._open(bundle, order.options)
            except PipelineError as error:
                return ReplicaRefusal(describe_error(error, kind=False))
        return ReplicaReady(os.getpid(), read_boot(), str(load_ray().get_runtime_context().get_node_id()))

    def run(self, arrays: Sequence[np.ndarray]) -> ReplicaReply | None:
        """Run one frame, or return None in an actor restarted by Ray."""
        received_s = perf_counter()
        if self._calls is None:
            return None
        outcome = self._calls.run([_writable(array) for array in arrays])
        return ReplicaReply(outcome, received_s, perf_counter())

    def run_pieces(self, heads: Any, outputs: int, *pieces: bytes) -> list[Any]:
        """Run one frame from pieces; return reply and output pieces."""
        reply = self.run(frame_pieces.join_tensors(heads, pieces))
        if reply is None:
            return [None] * (1 + outputs)
        cut = frame_pieces.cut_tensors(reply.outcome.arrays)
        if len(cut.pieces) > outputs:
            # Larger than the plan says, as of a size that varies: they travel with the reply.
            return [reply, *[b""] * outputs]
        reply = reply._replace(outcome=reply.outcome._replace(arrays=[]), heads=cut.heads)
        return [reply, *cut.pieces, *[b""] * (outputs - len(cut.pieces))]

    def greet(self) -> None:
        """Give a sign of life."""

    def _open(self, bundle: Bundle, options: Mapping[str, Any]) -> FrameProgram:
        self._lease = core_lease.lease_cores(core_lease.plan_cores(bundle.plan))
        plan = core_lease.place_on_cores(bundle.plan, self._lease.cores)
        more = [type(build)(core_lease.place_on_cores(build.plan, self._lease.cores), build.codes, build.symbolic)
                for build in bundle.more]  # fmt: skip
        try:
            return FrameProgram(plan, bundle.codes, shapes=bundle.shapes, more=more, **options)
        except BaseException:
            self._lease.close()
            raise


def _load(order: ReplicaOrder, references: Mapping[str, Any] | None) -> Bundle | None:
    path = bundle_parts.find_bundle(order.digest)
    if path is not None:
        try:
            return Bundle.load(path, order.devices)
        except BundleError:
            # Damaged there, or half written by a machine that lost its power: it comes again.
            if references is None:
                return None
    if references is None:
        return None
    files = dict(zip(references, load_ray().get(list(references.values())), strict=True))
    return Bundle.load(bundle_parts.keep_bundle(BundleParts(order.digest, files)), order.devices)


class _Alias:
    """A tensor's memory under another name; keeps the tensor."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def _writable(array: np.ndarray) -> np.ndarray:
    """Return an object-store tensor in a form devices take in place.

    Devices refuse arrays that are marked as read-only, although no stage writes to its inputs, which others may read as
    well.
    """
    return array if array.flags.writeable or not array.size else np.asarray(_Alias(array))


@functools.cache
def read_boot() -> str:
    """Return an identifier of this running kernel."""
    try:
        return BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""
