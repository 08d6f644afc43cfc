"""PlanRequest: stages, devices and cuts fixed by a user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypedDict

from pipeline.core.board.board import Board, Device
from pipeline.errors import PlanError
from pipeline.split.cuts import resolve
from pipeline.split.graph import Graph
from pipeline.split.planning.problem.borrowable import split_name
from pipeline.split.planning.problem.pins import Pins, stage_devices


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
