"""The public function profile: seconds of each fused group on each device of a board, measured where possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TYPE_CHECKING, Any

from pipeline.board import Board, Device, Link

if TYPE_CHECKING:
    from pipeline.executor.cost_cache import CostCache
    from pipeline.plans import StagePlan
    from pipeline.split.graph import Graph


@dataclass(frozen=True)
class Profile:
    """What a model's groups of operators cost on the devices of a board.

    Attributes
    ----------
    board : Board
        With the rates that were measured in place of its own.
    seconds : mapping of str to tuple of float
        For each device, the seconds of one frame in each fused group, alone on one core; infinite where the device
        cannot run the group.
    estimated : mapping of str to str
        The devices whose seconds are estimates, and why they were not measured.
    """

    board: Board
    seconds: Mapping[str, tuple[float, ...]]
    estimated: Mapping[str, str] = field(default_factory=dict)

    @property
    def measured(self) -> dict[str, tuple[float, ...]]:
        """The seconds on those devices that were measured."""
        return {name: times for name, times in self.seconds.items() if name not in self.estimated}


def profile(
    graph: Graph,
    board: Board | str = "host",
    *,
    fresh: bool = False,
    cache: CostCache | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Profile:
    """Measure a model's fused groups on each device of a board that this machine has, and the links by copying.

    What is measured is kept in the user's cache, by operators, shapes, target and versions, so that the next call, and
    other models with the same operators, take almost no time.

    Parameters
    ----------
    graph : Graph
    board : Board or str
        A board, its name, or the path of its TOML file.
    fresh : bool
        Measure again what is in the cache.
    cache : CostCache, optional
        Another place than the user's cache.
    progress : callable, optional
        Told what is being done.

    Raises
    ------
    BoardError
        If the board is unknown or its file wrong.
    BuildError
        If TVM cannot compile a group.
    """
    from pipeline.executor import present
    from pipeline.executor.cost_cache import CostCache
    from pipeline.split.costs import estimate

    if isinstance(board, str):
        import boards

        board = boards.get(board)
    kept = cache or CostCache.of_user(fresh=fresh)
    absent = {device.name: present.why_absent(device) for device in board.devices}
    found = _with_rates(board, [device for device in board.devices if not absent[device.name]], kept)
    pairs = _groups(graph)
    seconds = {
        device.name: tuple(
            estimate(graph, device) if absent[device.name] else _measured(graph, device, pairs, kept, progress)
        )
        for device in found.devices
    }
    return Profile(found, seconds, {name: reason for name, reason in absent.items() if reason})


def _with_rates(board: Board, present: list[Device], cache: CostCache) -> Board:
    """Return the board with what copying measures: bytes per second of its CPUs, and links between present devices."""
    from pipeline.executor import copying

    rates = {each.name: copying.memory_rate(each, cache) for each in present if each.kind == "cpu"}
    devices = tuple(
        replace(each, bytes_per_s=rates[each.name], measured=tuple(dict.fromkeys((*each.measured, "bytes_per_s"))))
        if each.name in rates
        else each
        for each in board.devices
    )
    by_memory = {each.memory: each for each in present}

    def measured(link: Link) -> Link:
        ends = [by_memory.get(end) for end in link.ends]
        return copying.link(ends[0], ends[1], cache) if ends[0] and ends[1] else link

    return replace(board, devices=devices, links=tuple(map(measured, board.links)))


def _measured(
    graph: Graph,
    device: Device,
    pairs: Sequence[tuple[StagePlan, Any]],
    cache: CostCache,
    progress: Callable[[str], None],
) -> Iterator[float]:
    """Yield the seconds of each group, without building those that the device cannot run."""
    from pipeline.executor.profile import measure
    from pipeline.split.costs import runs

    able = runs(graph, device)
    times = iter(measure(list(compress(pairs, able)), device, progress, cache=cache))
    return (next(times) if possible else math.inf for possible in able)


def _groups(graph: Graph) -> list[tuple[StagePlan, Any]]:
    from pipeline.plans import StagePlan
    from pipeline.split import extract

    return [
        (StagePlan(f"group{number}", "", part.inputs, part.outputs), extract.module(part))
        for number, part in enumerate(extract.parts(graph, graph.group_ends[:-1]))
    ]
