"""Profile: seconds of fused groups per board device, measured where possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TYPE_CHECKING, Any

from pipeline.core.board.board import Board, Device, Link
from pipeline.core.plan.stage_options import NO_OPTIONS, StageOptions
from pipeline.errors import BuildError, DeviceLost
from pipeline.measure.sampling import FULL, MeasureOptions, Sampling

if TYPE_CHECKING:
    from pipeline.core.plan.plan import StagePlan
    from pipeline.measure.cost_cache import CostCache
    from pipeline.measure.group_times import GroupTimes
    from pipeline.split.graph import Graph
    from pipeline.split.offload import Refusals
    from pipeline.split.planning.problem.spans import SpanTimes


@dataclass(frozen=True)
class Profile:
    """Costs of a model's groups on a board's devices."""

    board: Board
    """Board with the measured rates in place of its own."""
    seconds: Mapping[str, tuple[float, ...]]
    """Seconds of one frame in each fused group, for each device, isolated on one core; infinite where the device cannot
    run the group. Of a device that can run them all they add up to what the whole model takes there (on cores of this
    machine, as it streams); groups of some microseconds, timed one by one, would not."""
    estimated: Mapping[str, str] = field(default_factory=dict)
    """The devices whose seconds are estimates, and why they were not measured."""
    contended: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Seconds while a device's other cores are busy with the same model, for each device that was measured."""
    spans: Mapping[str, SpanTimes] = field(default_factory=dict)
    """Times of spans where they are not the sums of those of groups, by the name of a device with its runtime."""
    tools: Mapping[str, str] = field(default_factory=dict)
    """The vendors' tools that measured devices which are not here."""

    @property
    def measured(self) -> dict[str, tuple[float, ...]]:
        """Seconds on the measured devices."""
        return {name: times for name, times in self.seconds.items() if name not in self.estimated}


def profile(  # noqa: PLR0913 - all but the first two by keyword
    graph: Graph,
    board: Board | str = "host",
    *,
    fresh: bool = False,
    cache: CostCache | None = None,
    refusals: Mapping[str, Refusals] | None = None,
    sampling: Sampling = FULL,
    stage_options: StageOptions = NO_OPTIONS,
    progress: Callable[[str], None] = lambda _: None,
) -> Profile:
    """Measure a model's groups on the board's present devices, and links.

    Devices of other machines are measured there, by their own clock, if their servers run and take uploads.

    Measurements are kept in the user's cache, by operators, shapes, target and versions, so that the next call takes
    almost no time, and other models with the same operators little more than one build of the whole model. Raises
    `BoardError` if the board is unknown or its file wrong; `BuildError` if TVM cannot compile a group. The board may be
    a name or the path of a TOML file. `fresh` measures again what is in the cache, the user's by default. Groups in
    `refusals` are not built for their device. Groups are measured, or estimated, with `stage_options`; `progress` gets
    a text for each step.
    """
    # Not at the top, since it needs TVM: the results of a profile can be read without.
    from pipeline.measure.cost_cache import CostCache
    from pipeline.split.planning.problem.costs import estimate
    from pipeline.split.products import end_products

    # As a build has them.
    if stage_options.is_narrow and stage_options.float32_layers is None:
        stage_options = replace(stage_options, float32_layers=tuple(end_products(graph)))
    if isinstance(board, str):
        import boards

        board = boards.get(board)
    options = MeasureOptions(cache or CostCache.of_user(fresh=fresh), sampling, progress, stage_options)
    # 1. Which devices can be measured, with the targets that their servers tell.
    described_board, absence_reasons = _describe_devices(board)
    # 2. Rates of their memories and links, by copying.
    local = [device for device in described_board.devices if device.name not in absence_reasons]
    rated_board = _measure_rates(described_board, local, options.cache)
    # 3. Groups, one by one; of devices that others' runtimes drive, spans of them instead.
    seconds, contended_seconds = _time_devices(graph, rated_board, absence_reasons, options)
    spans = _time_spans(graph, rated_board, absence_reasons, refusals or {}, options)
    seconds |= {name: tuple(times.group_seconds(estimate(graph, board.device(name)))) for name, times in spans.items()}
    # 4. Devices that are elsewhere, by their vendors' tools.
    tools = _take_imports(graph, board, seconds, contended_seconds, absence_reasons, options.cache)
    # 5. The board, with its rates; targets that servers told were for measuring, and its own ones stay.
    targets = {device.name: device.target for device in board.devices}
    devices = tuple(replace(device, target=targets[device.name]) for device in rated_board.devices)
    return Profile(replace(rated_board, devices=devices), seconds, absence_reasons, contended_seconds, spans, tools)


Seconds = dict[str, tuple[float, ...]]


def _take_imports(  # noqa: PLR0913, PLR0917 - all that an import replaces
    graph: Graph, board: Board, seconds: Seconds, contended: Seconds, absence_reasons: dict[str, str], cache: CostCache
) -> dict[str, str]:
    """Put imported times in place of estimates, and return their tools by device."""
    from pipeline.measure.cost_cache import key_of_import

    tools = {}
    for name in list(absence_reasons):
        record = cache.get_import(key_of_import(graph.digest, board, board.device(name)))
        # Divided groups have other times.
        if record and len(record.seconds) == len(graph.group_ends):
            seconds[name] = contended[name] = tuple(math.inf if time is None else time for time in record.seconds)
            tools[name] = record.tool
            del absence_reasons[name]
    return tools


def _time_devices(
    graph: Graph, board: Board, absence_reasons: dict[str, str], options: MeasureOptions
) -> tuple[Seconds, Seconds]:
    """Return isolated and contended seconds per device, moving lost ones to absent."""
    from pipeline.measure.group_times import extract_groups
    from pipeline.split.planning.problem.costs import estimate

    # The last group ends where the model does, which is no cut.
    pairs = extract_groups(graph, graph.group_ends[:-1])
    seconds: Seconds = {}
    contended_seconds: Seconds = {}
    for device in board.devices:
        if device.capabilities.model_format and device.name not in absence_reasons:
            continue
        if device.name not in absence_reasons:
            try:
                seconds[device.name], contended_seconds[device.name] = _time_groups(graph, device, pairs, options)
            except DeviceLost as error:  # while it is measured, or since it takes no uploads
                absence_reasons[device.name] = str(error)
        # No `else`: a device that was lost just now is estimated, too.
        if device.name in absence_reasons:
            seconds[device.name] = tuple(estimate(graph, device, options.stage_options))
    return seconds, contended_seconds


def _time_spans(
    graph: Graph,
    board: Board,
    absence_reasons: Mapping[str, str],
    refusals: Mapping[str, Refusals],
    options: MeasureOptions,
) -> dict[str, SpanTimes]:
    """Return the span times of foreign-runtime devices, by name with runtime."""
    from pipeline.executor import detection
    from pipeline.measure.span_timer import time_spans

    # A runtime has no architecture of its own: it is absent where its device is.
    present = [device for device in board.devices if device.name not in absence_reasons]
    variants = [board.device(name) for device in present for name in device.variants]
    # With so many places at least, a plan may have stages between others.
    inner = sum(device.places for device in board.devices) > 2
    return {
        device.name: time_spans(
            graph,
            device,
            options,
            # Where others have to run a part, what is beside it is in between.
            inner=inner or bool(refusals.get(device.name)),
            refused=refusals.get(device.name, ()),
        )
        for device in variants
        if device.capabilities.model_format and not detection.why_absent(device)
    }


def _describe_devices(board: Board) -> tuple[Board, dict[str, str]]:
    """Return the board with server targets, and reasons against measuring devices."""
    pairs = [_describe_device(device) for device in board.devices]
    absence_reasons = {device.name: reason for device, reason in pairs if reason}
    return replace(board, devices=tuple(device for device, _ in pairs)), absence_reasons


def _describe_device(device: Device) -> tuple[Device, str]:
    """Return the device with its server's target, and a reason against measuring."""
    from pipeline.executor import detection, devices
    from pipeline.measure import remote_rates

    if not devices.is_remote(device):
        return device, detection.why_absent(device)
    if not devices.computes(device):
        return device, f"{device.address} computes nothing"
    try:
        return remote_rates.complete_target(device), ""
    except (DeviceLost, BuildError) as error:
        return device, str(error)


def _measure_rates(board: Board, local: list[Device], cache: CostCache) -> Board:
    """Return the board with measured copying: CPU rates and local links."""
    from pipeline.measure import link_rates

    rates = {device.name: link_rates.memory_rate(device, cache) for device in local if device.capabilities.is_processor}
    devices = tuple(_set_rate(device, rates.get(device.name)) for device in board.devices)
    by_memory = {device.memory: device for device in local}
    return replace(board, devices=devices, links=tuple(_measure_link(link, by_memory, cache) for link in board.links))


def _set_rate(device: Device, rate: float | None) -> Device:
    if rate is None:
        return device
    # Named once, even if the board says already that it was measured.
    return replace(
        device, bytes_per_s=rate, accuracy=None, measured=tuple(dict.fromkeys((*device.measured, "bytes_per_s")))
    )


def _measure_link(link: Link, by_memory: Mapping[str, Device], cache: CostCache) -> Link:
    """Measure a link between measurable ends, one of them local."""
    from pipeline.executor import devices
    from pipeline.measure import link_rates

    source, target = map(by_memory.get, link.ends)
    if source is None or target is None:
        return link
    if devices.is_remote(source):
        # The remote one second, as `measure_remote_link` has it; a link of two of them is nobody's here.
        source, target = target, source
    if not devices.is_remote(target):
        return link_rates.measure_link(source, target, cache)
    try:
        return link if devices.is_remote(source) else link_rates.measure_remote_link(source, target)
    except DeviceLost:
        return link


def _time_groups(
    graph: Graph, device: Device, pairs: Sequence[tuple[StagePlan, Any]], options: MeasureOptions
) -> Iterator[tuple[float, ...]]:
    """Yield isolated and contended seconds per group, without unsupported groups."""
    from pipeline.measure.group_times import measure
    from pipeline.split.planning.problem.costs import runs

    runnable = runs(graph, device)
    group_times = measure(list(compress(pairs, runnable)), device, options)
    # Else there is no whole model on this device that its groups could add up to.
    if all(runnable):
        group_times = group_times.scale(_time_unsplit(graph, device, options))
    for seconds in group_times:
        runnable_seconds = iter(seconds)
        yield tuple(next(runnable_seconds) if can_run else math.inf for can_run in runnable)


def _time_unsplit(graph: Graph, device: Device, options: MeasureOptions) -> GroupTimes:
    from pipeline.measure.group_times import extract_groups, measure
    from pipeline.measure.unsplit_rate import UnsplitBaseline

    if device.capabilities.is_processor:
        return UnsplitBaseline(graph, device, options).time()
    # Frames that stream to other memories would be measured with their copies, which a plan adds by itself.
    progress = options.progress
    options = replace(options, progress=lambda _: progress("measuring the whole model"))
    return measure(extract_groups(graph, ()), device, options)
