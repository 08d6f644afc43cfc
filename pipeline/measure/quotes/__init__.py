"""Quotes: what a vendor's compiler says of a model's layers, without the chip.

A compiler is a program in this folder and one line in `COMPILERS`. The program runs by a Python that has the compiler,
takes the paths of a model and of its answer and the chip's name, and writes JSON of `Quote`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pipeline.core.board.board import Board, Device
from pipeline.errors import BuildError
from pipeline.executor.devices.model_tool import LIMIT_S, ModelTool
from pipeline.measure.quotes.compilers import COMPILERS, check_names, find_python, ways_to_name

if TYPE_CHECKING:
    from pipeline.measure.cost_cache import CostCache
    from pipeline.split.graph import Graph
    from pipeline.split.offload import Refusals

logger = logging.getLogger(__name__)


class LayerQuote(msgspec.Struct, frozen=True):
    """A compiler's word on one of its layers."""

    operators: tuple[str, ...]
    """The model's names of its operators and their outputs; others are fused into them."""
    target: str
    """Processor: ``"NPU"``, or another one such as ``"CPU"``."""
    precision: str
    cycles: int
    """Cycles of the NPU, those of memories if the compiler counts them; 0 where it counts none."""
    bytes: int
    """Bytes read and written."""
    is_move: bool = False
    """True if it changes no values, which the vendor's runtime may do on the CPU for layers of the NPU."""


class Quote(msgspec.Struct, frozen=True):
    """A compiler's answer about a model."""

    tool: str
    """The compiler's name and version."""
    refusal: str = ""
    """Reason for which it cannot compile the model; empty if it can."""
    layers: tuple[LayerQuote, ...] = ()
    memory_bytes: int = 0
    """On-chip memory that the model takes; 0 where the compiler says none."""


@dataclass(frozen=True)
class Quotes:
    """Answers about one graph, by the device's name."""

    seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Seconds of each fused group; infinite where it is refused."""
    refusals: Mapping[str, Refusals] = field(default_factory=dict)
    notes: Sequence[str] = ()
    """Sentence on each device: compiler, precision, share of groups without cycles, or how to name a compiler."""


def find_quotes(  # noqa: PLR0913 - all by keyword
    graph: Graph,
    board: Board,
    *,
    tools: Mapping[str, str | Path] | None = None,
    cache: CostCache | None = None,
    fresh: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Quotes:
    """Ask the installed compilers of a board's devices about a graph.

    Parameters
    ----------
    tools : mapping of str to path, optional
        Pythons that have the compilers, by ``"rknn"`` and ``"vela"``; others are those of environment variables.
    cache : CostCache, optional
        Store of known and new answers; by default the user's.
    fresh : bool
        Ask again what is in the user's cache.

    Raises
    ------
    BoardError
        If a device or `tools` names an unknown compiler, or a Python has none.
    """
    tools = tools or {}
    check_names(tools)
    seconds: dict[str, Sequence[float]] = {}
    refusals: dict[str, Refusals] = {}
    # Cores of one NPU have the same sentence where nothing names their compiler.
    notes: dict[str, None] = {}
    answers: dict[str, _Answers] = {}
    for device in board.devices:
        table: Any = (device.target or {}).get("quotes")
        if not table or device.address:
            continue
        check_names({table["compiler"]: device})
        way = ways_to_name(table["compiler"])
        # Cores of one NPU are asked about once.
        if (key := repr(table)) not in answers:
            if not (python := find_python(table["compiler"], tools)):
                notes[f"times of the NPU are estimates; {way} lets its compiler count cycles"] = None
                continue
            from pipeline.measure.cost_cache import CostCache

            progress(f"asking the compiler of {device.name} about the model")
            answers[key] = _Answers(graph, device, python, cache or CostCache.of_user(fresh=fresh))
            try:
                answers[key].ask(0, len(graph.group_ends))
            except BuildError as error:
                logger.warning("%s: no quotes by %s, so its times are estimates: %s", device.name, way, error)
        if answers[key].layers or answers[key].refusals:
            seconds[device.name] = answers[key].seconds(device)
            refusals[device.name] = answers[key].refusals
            if answers[key].layers:
                notes[answers[key].note(device)] = None
    return Quotes(seconds, refusals, tuple(notes))


class _Answers:
    """A compiler's answers about the groups of one graph."""

    def __init__(self, graph: Graph, device: Device, python: str, cache: CostCache) -> None:
        from pipeline.executor.devices import compiler
        from pipeline.measure.vendor_profiles import group_names

        self._graph, self._device, self._cache = graph, device, cache
        self._groups = dict(group_names(graph))
        quotes: Any = (device.target or {})["quotes"]
        self._compiler = COMPILERS[quotes["compiler"]]
        program = Path(__file__).parent / self._compiler.program
        runtime: Any = compiler(device)
        self._runtime, model_format = runtime, runtime.model_format(device)
        words = (python, str(program), f"{{stage}}.{model_format}", "{artifact}", str(quotes["chip"]))
        self._tool = ModelTool(words, (), f"stage.{model_format}", "stage.json", LIMIT_S)
        self._clock_hz = float(quotes["clock_hz"])
        self._title = ""
        self._memory_bytes = 0
        self.layers: dict[int, list[LayerQuote]] = {}
        self.refusals: dict[int, str] = {}

    def ask(self, begin: int, end: int) -> None:
        """Ask about the groups ``[begin, end)``, and about halves of what is refused."""
        quote = self._quote(begin, end)
        if not quote.refusal:
            self._take(quote, begin, end)
        elif end - begin == 1:
            self.refusals[begin] = quote.refusal
        else:
            middle = (begin + end) // 2
            self.ask(begin, middle)
            self.ask(middle, end)

    def _quote(self, begin: int, end: int) -> Quote:
        from pipeline.export.stage_export import StageExport
        from pipeline.measure.cost_cache import QuoteRecord, key_of_quote
        from pipeline.split import extract

        part = extract.groups_part(self._graph, begin, end)
        try:
            model = self._runtime.serialize(StageExport(self._graph, part), self._device)
        except BuildError as error:
            return Quote("", f"it has no form in {self._runtime.model_format(self._device)}: {error}")
        key = key_of_quote(model, self._tool.compile)
        if record := self._cache.get_quote(key):
            return msgspec.json.decode(record.answer, type=Quote)
        answer = self._tool.compile_model(model)
        quote = msgspec.json.decode(answer, type=Quote)
        self._cache.put(QuoteRecord(key, answer.decode()))
        return quote

    def _take(self, quote: Quote, begin: int, end: int) -> None:
        self._title = quote.tool
        self._memory_bytes = max(self._memory_bytes, quote.memory_bytes)
        for layer in quote.layers:
            groups = {self._groups[name] for name in layer.operators if name in self._groups}
            for group in groups & {*range(begin, end)}:
                self.layers.setdefault(group, []).append(layer)
        for group in range(begin, end):
            layers = self.layers.get(group, ())
            others = [layer for layer in layers if layer.target != "NPU"]
            if others and (len(others) == len(layers) or not all(layer.is_move for layer in others)):
                self.refusals[group] = f"its compiler leaves it to the {others[0].target}"

    def seconds(self, device: Device) -> list[float]:
        """Return each group's seconds; those fused into others take none."""
        return [
            math.inf
            if group in self.refusals
            else sum(self._layer_s(layer, device) for layer in self.layers.get(group, ()))
            for group in range(len(self._graph.group_ends))
        ]

    def _layer_s(self, layer: LayerQuote, device: Device) -> float:
        # Layers of one model start each other: a start is that of a stage, which its link has.
        busy_s = layer.cycles / self._clock_hz
        if layer.cycles and self._compiler.counts_memory:
            return busy_s
        return busy_s + layer.bytes / (device.memory_bytes_per_s or device.bytes_per_s)

    def note(self, device: Device) -> str:
        """Return what of a device's times is quoted."""
        layers = [layer for layers in self.layers.values() for layer in layers if layer.target == "NPU"]
        counted = sum(layer.cycles > 0 for layer in layers)
        precisions = " and ".join(dict.fromkeys(layer.precision for layer in layers)) or "nothing"
        memory = f", with {math.ceil(self._memory_bytes / 1024)} KiB on the chip" if self._memory_bytes else ""
        return (
            f"{device.name}: cycles of {counted} of {len(layers)} layers are {self._title}'s, in {precisions}{memory}; "
            "the others are estimates by their bytes."
        )
