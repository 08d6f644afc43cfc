"""Refusals: fused groups unsupported by foreign runtimes, with reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import compress, groupby
from operator import and_
from typing import TYPE_CHECKING

from pipeline.core.board.board import Board, Device
from pipeline.errors import BuildError

if TYPE_CHECKING:
    from pipeline.executor.devices.model_runtime import ModelRuntime
    from pipeline.measure.cost_cache import CostCache
    from pipeline.split.extract import GraphPart
    from pipeline.split.graph import Graph
    from pipeline.split.offload import Refusals


def find_refusals(  # noqa: PLR0913 - all but the first two by keyword
    graph: Graph,
    board: Board,
    *,
    runtimes: bool = True,
    cache: CostCache | None = None,
    fresh: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Refusals]:
    """Return the unsupported groups per foreign-runtime device.

    Devices other than CPU cores are asked, by a model of each group; runtimes on the cores run every group that has a
    form in their format. Devices that are not here are left out. With `runtimes`, all further ones of each device are
    asked, too. New answers go to the cache, the user's by default; `fresh` asks again what is there.
    """
    names = [name for device in board.devices for name in (device.variants if runtimes else device.variants[:1])]
    refusals: dict[str, Refusals] = _find_misfits(graph, [board.device(name) for name in names])
    devices = [device for device in map(board.device, names) if device.capabilities.model_format and not device.address]
    # Not at the top, nor for boards without such devices: all of these need TVM.
    if not devices:
        return refusals
    from pipeline.measure.cost_cache import CostCache

    cache = cache or CostCache.of_user(fresh=fresh)
    for device in devices:
        if (runtime := _runtime(device)) is not None:
            progress(f"asking {device.name} what it runs")
            answers = _Inquiry(graph, device, runtime, cache).refusals()
            refusals[device.name] = {**answers, **refusals.get(device.name, {})}
    return refusals


def _find_misfits(graph: Graph, devices: Sequence[Device]) -> dict[str, Refusals]:
    """Return the compiled files that are for other chips, with both names, by device."""
    from pipeline.split.planning.problem.group_work import group_works

    misfits: dict[str, dict[int, str]] = {}
    for group, work in enumerate(group_works(graph) if graph.compiled else ()):
        if (file := work.compiled) is None:
            continue
        # That a CPU runs no file for an NPU goes without saying, where there is an NPU.
        for device in [device for device in devices if file.fits_format(device)] or devices:
            if reason := file.describe_misfit(device):
                misfits.setdefault(device.name, {})[group] = reason
    return dict(misfits)


def _runtime(device: Device) -> type[ModelRuntime] | None:
    """Return a device's adapter, if its runtime is here."""
    from pipeline.executor import devices
    from pipeline.executor.devices.model_runtime import ModelRuntime

    compiler = devices.compiler(device)
    if compiler is None or not issubclass(compiler, ModelRuntime):
        return None
    return compiler if compiler.is_here(device) or compiler.is_selective(device) else None


class _Inquiry:
    """Questions about one graph to one device."""

    def __init__(self, graph: Graph, device: Device, runtime: type[ModelRuntime], cache: CostCache) -> None:
        self._graph, self._device, self._runtime, self._cache = graph, device, runtime, cache
        self._is_selective = runtime.is_selective(device)

    def refusals(self) -> Refusals:
        """Return the groups unsupported by the device."""
        from pipeline.split import extract
        from pipeline.split.planning.problem.costs import runs
        from pipeline.split.planning.problem.group_work import group_works

        parts = enumerate(extract.parts(self._graph, self._graph.group_ends[:-1]))
        # What the board excludes need not be asked, nor what no library can open but the chip's own.
        asked = [work.compiled is None or work.compiled.has_library for work in group_works(self._graph)]
        candidates = compress(parts, map(and_, runs(self._graph, self._device), asked))
        reasons = {group: self._reason(part) for group, part in candidates}
        for begin, end in _runs([group for group, reason in reasons.items() if reason is None]):
            # An operator of the model may be several groups, of which none has a form without the others.
            reason = self._reason(extract.groups_part(self._graph, begin, end)) if end > begin + 1 else None
            reasons |= dict.fromkeys(range(begin, end), self._describe_formless() if reason is None else reason)
        return {group: reason for group, reason in reasons.items() if reason}

    def _describe_formless(self) -> str:
        """Explain a part without form for the device."""
        from pipeline import frontends
        from pipeline.frontends import formats

        model_format = self._runtime.model_format(self._device)
        kinds = {frontends.kind(source.model) for source in self._graph.sources}
        if model_format == "tflite" and formats.TFLITE not in kinds:
            # Nothing writes TFLite; its parts are cut out of the model.
            models = " and ".join(map(str, kinds)) or "another model"
            return f"{self._device.name} runs parts of TFLite models only, and this is {models}; choose another runtime"
        return f"it has no form in {model_format}"

    def _reason(self, part: GraphPart) -> str | None:
        """Return why the device refuses a part, empty if not; None without form."""
        from pipeline.export.stage_export import StageExport

        source = StageExport(self._graph, part)
        try:
            model = source.compiled() or self._runtime.serialize(source, self._device)
        except BuildError:
            return None
        return self._ask(model) if self._is_selective else ""

    @cached_property
    def _fingerprint(self) -> str:
        # Once for all groups: it may be that of a file.
        return self._runtime.fingerprint(self._device)

    def _ask(self, model: bytes) -> str:
        from pipeline.measure.cost_cache import RefusalRecord, key_of_refusal

        key = key_of_refusal(model, self._device, self._fingerprint)
        if (record := self._cache.get_refusal(key)) is not None:
            return record.reason
        try:
            reason = self._runtime.describe_fallbacks(model, self._device)
        except BuildError as error:
            # Not kept: the driver may only be busy.
            return str(error)
        self._cache.put(RefusalRecord(key, reason))
        return reason


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of consecutive numbers."""
    for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield members[0], members[-1] + 1
