"""The public function profile: seconds of each fused group on each device of a board, measured where possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TYPE_CHECKING, Any

from pipeline.board import Board, Device, Link
from pipeline.errors import BuildError, DeviceLost

if TYPE_CHECKING:
    from pipeline.executor.cost_cache import CostCache
    from pipeline.executor.profile import Times
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
        cannot run the group.  Of a device that can run them all they add up to what the whole model takes there
        (on cores of this machine, as it streams); groups of some microseconds, timed one by one, would not.
    estimated : mapping of str to str
        The devices whose seconds are estimates, and why they were not measured.
    crowded : mapping of str to tuple of float
        For each device that was measured, the seconds while its other cores are busy with the same model.
    """

    board: Board
    seconds: Mapping[str, tuple[float, ...]]
    estimated: Mapping[str, str] = field(default_factory=dict)
    crowded: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

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

    Devices of other machines are measured there, by their own clock, if their servers run and take uploads.

    What is measured is kept in the user's cache, by operators, shapes, target and versions, so that the next call takes
    almost no time, and other models with the same operators little more than one build of the whole model.

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
    from pipeline.executor.cost_cache import CostCache
    from pipeline.split.costs import estimate

    if isinstance(board, str):
        import boards

        board = boards.get(board)
    kept = cache or CostCache.of_user(fresh=fresh)
    found, absent = _looked_for(board)
    found = _with_rates(found, [device for device in found.devices if device.name not in absent], kept)
    pairs = pieces(graph, graph.group_ends[:-1])
    seconds, crowded = {}, {}
    for device in found.devices:
        if device.name not in absent:
            try:
                seconds[device.name], crowded[device.name] = _measured(graph, device, pairs, kept, progress)
            except DeviceLost as error:  # while it is measured, or since it takes no uploads
                absent[device.name] = str(error)
        if device.name in absent:
            seconds[device.name] = tuple(estimate(graph, device))
    given = tuple(replace(each, target=board.device(each.name).target) for each in found.devices)
    return Profile(replace(found, devices=given), seconds, absent, crowded)


def _looked_for(board: Board) -> tuple[Board, dict[str, str]]:
    """Return the board with the targets that servers tell, and the devices that cannot be measured, each with why."""
    looked = [_looked_at(device) for device in board.devices]
    absent = {device.name: reason for device, reason in looked if reason}
    return replace(board, devices=tuple(device for device, _ in looked)), absent


def _looked_at(device: Device) -> tuple[Device, str]:
    """Return the device, with its target if a server tells it, and why it cannot be measured, if so."""
    from pipeline.executor import devices, far, present

    if not devices.elsewhere(device):
        return device, present.why_absent(device)
    if not devices.computes(device):
        return device, f"{device.address} computes nothing"
    try:
        return far.described(device), ""
    except (DeviceLost, BuildError) as error:
        return device, str(error)


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
    return replace(board, devices=devices, links=tuple(_link(each, by_memory, cache) for each in board.links))


def _link(link: Link, present: Mapping[str, Device], cache: CostCache) -> Link:
    """Return a link as it is measured, if both ends are present and one of them is of this machine."""
    from pipeline.executor import copying, devices

    one, other = map(present.get, link.ends)
    if one is None or other is None:
        return link
    if devices.elsewhere(one):
        one, other = other, one
    if not devices.elsewhere(other):
        return copying.link(one, other, cache)
    try:
        return link if devices.elsewhere(one) else copying.far_link(one, other)
    except DeviceLost:
        return link


def _measured(
    graph: Graph,
    device: Device,
    pairs: Sequence[tuple[StagePlan, Any]],
    cache: CostCache,
    progress: Callable[[str], None],
) -> Iterator[tuple[float, ...]]:
    """Yield the seconds of each group, alone and crowded, without building those that the device cannot run."""
    from pipeline.executor.profile import measure
    from pipeline.split.costs import runs

    able = runs(graph, device)
    found = measure(list(compress(pairs, able)), device, progress, cache=cache)
    if all(able):
        found = found.scaled(_whole(graph, device, cache, progress))
    for each in found:
        times = iter(each)
        yield tuple(next(times) if possible else math.inf for possible in able)


def _whole(graph: Graph, device: Device, cache: CostCache, progress: Callable[[str], None]) -> Times:
    from pipeline.executor.profile import measure
    from pipeline.whole import Whole

    if device.kind == "cpu":
        return Whole(graph, device, cache, progress).time()
    # Frames that stream to other memories would be measured with their copies, which a plan adds by itself.
    return measure(pieces(graph, ()), device, lambda _: progress("measuring the whole model"), cache=cache)


def pieces(graph: Graph, cuts: Sequence[int]) -> list[tuple[StagePlan, Any]]:
    """Return what lies between the cuts, each with its module."""
    from pipeline.plans import StagePlan
    from pipeline.split import extract

    return [
        (StagePlan(f"group{number}", "", part.inputs, part.outputs), extract.module(part))
        for number, part in enumerate(extract.parts(graph, cuts))
    ]
