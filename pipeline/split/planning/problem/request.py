"""PlanRequest: stages, devices, cuts and objective fixed by a user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Real
from typing import TypedDict

import numpy as np

from pipeline.core.board.board import Board, Device
from pipeline.errors import PlanError, near
from pipeline.split.cuts import resolve
from pipeline.split.graph import Graph
from pipeline.split.planning.problem.pins import Pins, stage_devices


def is_borrowable(device: Device) -> bool:
    """Check for a local device without cores, open to borrowing."""
    kind = device.capabilities
    return not device.cores and not device.address and kind.computes and not kind.occupies_cores


def may_borrow(device: Device) -> bool:
    """Check for a device of local cores, whose workers may borrow."""
    return bool(device.cores) and not device.address and device.capabilities.occupies_cores


def split_name(board: Board, name: str) -> tuple[str, tuple[str, ...]]:
    """Return own and borrowed devices of a name such as ``"cpu+vta"``.

    Raises `PlanError` if one of them cannot be borrowed, or the first one not borrow; `BoardError` if the board has no
    such device.
    """
    home, *borrowed = name.split("+")
    if borrowed and not may_borrow(board.device(home)):
        raise PlanError(f"{name!r}: {home!r} has no cores of this machine whose workers could borrow a device")
    for device in borrowed:
        if not is_borrowable(board.device(device)):
            names = [device.name for device in board.devices if is_borrowable(device)]
            raise PlanError(
                f"{name!r}: {device!r} cannot be borrowed; board {board.name!r} has "
                f"{', '.join(names) or 'nothing that can be'}{near(device, names)}"
            )
    return home, tuple(borrowed)


class PlanChoices(TypedDict, total=False):
    """Keyword arguments of `Planner.plan`: fixed parts and the aim."""

    stages: int | str
    cuts: Sequence[str | int] | None
    devices: Sequence[str] | None
    objective: str | None
    fps: float | None
    replicas: bool
    heterogeneous: bool


@dataclass(frozen=True)
class PlanRequest:
    """Stages required of a plan."""

    devices: tuple[tuple[Device, ...], ...] = ()
    """Devices that may run each stage; empty for any number of stages on any device."""
    edges: tuple[int, ...] = ()
    """Positions between fused groups, the ends included, where the stages have to begin and end; empty for any."""
    borrowed: tuple[tuple[str, ...], ...] = ()
    """Devices that each stage's workers borrow; empty if none does."""

    def name(self, stage: int) -> str:
        """Return the required name of a stage's borrowers; empty for any."""
        borrowed = self.borrowed[stage] if stage < len(self.borrowed) else ()
        return "+".join((self.devices[stage][0].name, *borrowed)) if borrowed else ""

    @property
    def order(self) -> list[Device]:
        """Device of each stage, empty unless each has only one."""
        return [stage[0] for stage in self.devices] if all(len(stage) == 1 for stage in self.devices) else []

    def spare_units(self, device: Device) -> int:
        """Return the units of a stage, without the needs of others.

        Below 1, the device has to run more stages than it has any.
        """
        # Only stages that no other device may run; the others can go elsewhere.
        stages = sum(all(device.is_called(candidate.name) for candidate in stage) for stage in self.devices)
        if device.cores:
            # Of more stages than all others have places for, the rest shares the cores.
            stages = max(
                stages, len(self.devices) - sum(_units(needed_device) for needed_device in self._other_devices(device))
            )
        return _units(device) - max(0, stages - 1)

    def _other_devices(self, device: Device) -> list[Device]:
        candidates = {candidate.name: candidate for stage in self.devices for candidate in stage}
        return [candidate for name, candidate in candidates.items() if not device.is_called(name)]


def _units(device: Device) -> int:
    return device.places if device.capabilities.has_slots else len(device.cores) or device.places


ANY_REQUEST = PlanRequest()
"""Request that fixes nothing."""


def resolve_request(  # noqa: PLR0913, PLR0917 - what a user may fix, and what it is about
    graph: Graph,
    board: Board,
    pins: Pins,
    stages: int | str,
    cuts: Sequence[str | int] | None,
    devices: Sequence[str] | None,
) -> PlanRequest:
    """Return a user's devices and positions.

    Raises `PlanError` if a cut is unknown, there are fewer legal cuts than asked for, or `stages`, `cuts` and `devices`
    disagree; `BoardError` if the board has no such device.
    """
    if not graph.operators:
        raise PlanError(f"{graph.name!r} has no operators, so that there is nothing to plan")
    for name, value in (("cuts", cuts), ("devices", devices)):
        if isinstance(value, str):
            raise PlanError(f"{name} is {value!r}; give a list, such as [{value!r}]")
    if cuts is not None:
        edges = _edges(graph, cuts, stages)
        # Nothing is chosen where the cuts are fixed: the first device that can is what a reader expects.
        order, borrowed = _order(board, devices, len(edges) - 1)
        order = order or list(stage_devices(board, pins, pairwise(edges)))
        return PlanRequest(tuple((device,) for device in order), edges, borrowed)
    if stages == "auto" and devices is None:
        return PlanRequest()
    count = _check_count(graph, len(devices or ()) if stages == "auto" else stages)
    order, borrowed = _order(board, devices, count)
    return PlanRequest(tuple((device,) for device in order) or (tuple(board.devices),) * count, (), borrowed)


def _edges(graph: Graph, cuts: Sequence[str | int], stages: int | str) -> tuple[int, ...]:
    positions, ends = resolve(graph, cuts), graph.group_ends
    if stages not in ("auto", len(positions) + 1):
        raise PlanError(f"{len(positions)} cuts make {len(positions) + 1} stages, not {stages!r}; give one of the two")
    # Users give positions between operators; the problem's items are groups.
    groups = {end: index + 1 for index, end in enumerate(ends)}
    return (0, *(groups[position] for position in positions), len(ends))


def _order(board: Board, devices: Sequence[str] | None, count: int) -> tuple[list[Device], tuple[tuple[str, ...], ...]]:
    """Return each stage's device and loans; nothing if free."""
    if devices is None:
        return [], ()
    if len(devices) != count:
        raise PlanError(f"{len(devices)} devices for {count} stages; give one for each stage")
    names = [split_name(board, name) for name in devices]
    borrowed = tuple(borrowed for _, borrowed in names)
    # Asked for by its own name, it is without its other runtimes.
    return [replace(board.device(name), runtimes=()) for name, _ in names], borrowed if any(borrowed) else ()


def _check_count(graph: Graph, stages: int | str) -> int:
    limit = len(graph.group_ends)
    if not isinstance(stages, int) or isinstance(stages, bool) or stages < 1:
        raise PlanError(f"stages is {stages!r}; it must be a whole number of at least 1, or 'auto'")
    if stages > limit:
        raise PlanError(
            f"{stages} stages need {stages - 1} cuts, but {graph.name!r} has {limit - 1} legal ones: "
            f"at most {limit} stages"
        )
    return stages


OBJECTIVES = ("throughput", "latency", "energy")


def resolve_goal(objective: str | None, fps: float | None) -> str:
    """Return the objective, by default by the rate."""
    if fps is not None and not _is_rate(fps):
        raise PlanError(f"fps is {fps!r}; it must be a number above 0")
    goal = objective or ("latency" if fps else "throughput")
    if goal not in OBJECTIVES:
        raise PlanError(f"objective is {objective!r}; it must be one of {', '.join(OBJECTIVES)}")
    return goal


def _is_rate(value: object) -> bool:
    return isinstance(value, Real) and 0 < float(value) < np.inf


def check_watts(board: Board, request: PlanRequest) -> None:
    """Raise `PlanError` for devices without power: they would look free."""
    devices = {device.name: device for devices in request.devices or [board.devices] for device in devices}
    unknown = [repr(name) for name, device in devices.items() if not device.watts_busy]
    if unknown:
        raise PlanError(
            f"the objective 'energy' needs the power of all devices; board {board.name!r} has none of "
            f"{', '.join(unknown)}: give 'watts_idle' and 'watts_busy' in its file, or take another objective"
        )
