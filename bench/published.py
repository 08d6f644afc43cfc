"""Predicted rates of boards against published ones.

Each figure of boards/published is planned as it was measured: the whole model on that device alone, in that precision,
with those options, threads and cores.  A ratio is the predicted rate over the published one, above 1 for a promise that
was not kept.  Models are fitted or held out as a whole, by a hash of their name, and only the latter judge.

rows       fitted or held out; few are below 6 held-out ones, which judge little
figures    published figures that were planned; `refused` are those that the planner refused
mean       geometric mean of the ratios
within_20  share of ratios between 1/1.2 and 1.2
in_range   share of figures in the range that the board's file says for this device, which is to hold 90 %
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

import board_fit
import published_models
from report import Row, environment, parser, report

import boards
from boards.published import PublishedFigure, figures
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan
from pipeline.core.plan.stage_options import StageOptions
from pipeline.errors import PipelineError
from pipeline.prediction.predict import predict
from pipeline.split.graph import Graph
from pipeline.split.planning.planner import Planner

FEWEST = 6
"""Held-out figures of a device below which they judge little."""

CLOSE = 1.2
"""Ratio up to which a prediction counts as met, either way."""

CLOCKS = {"pynq-z2": 650e6, "raspberry-pi-4-1800": 1.8e9, "raspberry-pi-5": 2.4e9}
"""Clocks of boards' cores, by the boards' files; needed for figures of another clock."""

QUICK = ("googlenet", "mobilenet_v2", "resnet18", "squeezenet", "yolov8n")


@dataclass(frozen=True)
class Comparison:
    """A published figure and its prediction.

    Attributes
    ----------
    seconds : float
        Predicted seconds of a frame; infinite where the planner refuses the model.
    refusal : str
        The planner's reason.
    """

    figure: PublishedFigure
    seconds: float
    refusal: str = ""

    @property
    def ratio(self) -> float:
        """Predicted rate over the published one."""
        return self.figure.seconds / self.seconds

    @property
    def is_in_range(self) -> bool | None:
        """Check the range of the board's file; None without one."""
        accuracy = shipped_board(self.figure.board).device(self.figure.device).accuracy
        return None if accuracy is None or self.refusal else accuracy.low <= 1 / self.ratio <= accuracy.high

    @property
    def row(self) -> Row:
        """Row of the report."""
        figure = self.figure
        return {
            "device": f"{figure.board} {figure.device}",
            "model": f"{figure.model} {figure.size}" if figure.size else figure.model,
            "precision": " ".join((figure.precision, *figure.options)),
            "runtime": figure.runtime,
            "cores": len(figure_cores(figure)) or None,
            "rows": _kind(figure.model),
            "published_frames_per_s": 1 / figure.seconds,
            "predicted_frames_per_s": 1 / self.seconds,
            "ratio": self.ratio,
            "in_range": self.is_in_range,
            "refusal": self.refusal or None,
        }


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--board", help="figures of one board only")
    options.add_argument("--model", help="figures of one model only")
    options.add_argument("--all", action="store_true", help="print each figure as well")
    options.add_argument(
        "--write", action="store_true", help="fit the boards' rates first, and write them to their files"
    )
    arguments = options.parse_args()
    if arguments.write:
        board_fit.fit_boards(figures(), is_held_out, write=True)
        shipped_board.cache_clear()
    wanted = [
        figure
        for figure in figures(arguments.board)
        if arguments.model in {None, figure.model} and (not arguments.quick or figure.model in QUICK)
    ]
    comparisons = list(compare(wanted))
    rows, details = summarize(comparisons), [comparison.row for comparison in comparisons]
    if arguments.all:
        report("Published figures", details, "")
    report("Predicted over published rates", rows, (__doc__ or "").partition("\n\n")[2])
    if arguments.json:
        facts = {"environment": environment(), "rows": rows, "figures": details}
        arguments.json.write_text(json.dumps(facts, indent=1) + "\n")


def compare(wanted: Iterable[PublishedFigure]) -> Iterator[Comparison]:
    """Plan each figure, those of one network in a row."""

    def network(figure: PublishedFigure) -> tuple[str, int, str]:
        return figure.model, figure.size, model_precision(figure)

    for (model, size, precision), same in groupby(sorted(wanted, key=network), network):
        graph = published_models.graph(model, size or None, precision)
        yield from (compare_figure(graph, figure) for figure in same)


def compare_figure(graph: Graph, figure: PublishedFigure) -> Comparison:
    """Plan a figure, and compare its times."""
    try:
        return Comparison(figure, predict_seconds(plan_figure(graph, figure), figure))
    except PipelineError as error:
        return Comparison(figure, math.inf, str(error))


def model_precision(figure: PublishedFigure) -> str:
    """Return the precision of the model that a device is given; some compilers quantise themselves."""
    dtypes = shipped_board(figure.board).device(figure.device).dtypes
    return "int8" if figure.precision == "int8" and (not dtypes or "int8" in dtypes) else "float32"


def plan_figure(graph: Graph, figure: PublishedFigure) -> Plan:
    """Plan the whole model on the device of a figure, as it was measured."""
    winograd = "float32" if "winograd" in figure.options else "float32-exact"
    options = StageOptions(precision="float16" if figure.precision == "float16" else winograd)
    # A stream of frames overlaps transfers and computing where a device can.
    choices = {"stages": 1, "devices": [figure.device], "heterogeneous": False, "replicas": not figure.ms}
    board = figure_board(figure)
    if board.device(figure.device).cores:
        choices |= {"replicas": False, "objective": "latency"}
    return Planner(graph, board, options=options).plan(**choices)  # type: ignore[arg-type]


def predict_seconds(plan: Plan, figure: PublishedFigure) -> float:
    """Return the predicted seconds of a frame, by latency or rate as published."""
    prediction = predict(plan)
    return prediction.latency_s if figure.ms else prediction.interval_s


def figure_board(figure: PublishedFigure) -> Board:
    """Return the board with the device and the cores of a figure alone."""
    board = shipped_board(figure.board)
    device, home = board.device(figure.device), board.devices[0]
    if not device.cores:
        # What was measured ran: a vendor's runtime computes on the CPU what its chip does not.
        device = replace(device, families=())
        # The caller's memory is beside the first device.
        ends = {home.memory, device.memory}
        return replace(
            board, devices=(home, device), links=tuple(link for link in board.links if ends >= set(link.ends))
        )
    cores = figure_cores(figure)
    clusters = [replace(cluster, cores=tuple(core for core in cluster.cores if core in cores))
                for cluster in device.clusters]  # fmt: skip
    device = replace(device, cores=cores, clusters=tuple(cluster for cluster in clusters if cluster.cores))
    return replace(board, devices=(_at_clock(device, figure),), links=())


def figure_cores(figure: PublishedFigure) -> tuple[int, ...]:
    """Return the cores of a figure, the fastest ones unless it names them."""
    device = shipped_board(figure.board).device(figure.device)
    return figure.cores or device.cores[: figure.threads or len(device.cores)]


def _at_clock(device: Device, figure: PublishedFigure) -> Device:
    """Return a device at the clock of a figure; its memory keeps its rate."""
    if not figure.clock_hz:
        return device
    factor = figure.clock_hz / CLOCKS[figure.board]
    rates = {name: getattr(device, name) * factor for name in ("flops", "int8_flops", "float16_flops")
             if hasattr(device, name)}  # fmt: skip
    return replace(device, launch_s=device.launch_s / factor, **rates)


@lru_cache
def shipped_board(name: str) -> Board:
    """Return a board that comes along."""
    return boards.get(name)


def is_held_out(model: str) -> bool:
    """Check if figures of a model judge, instead of being fitted."""
    return zlib.crc32(model.encode()) % 2 == 1


def _kind(model: str) -> str:
    return "held out" if is_held_out(model) else "fitted"


def summarize(comparisons: Sequence[Comparison]) -> list[Row]:
    """Return a row for the fitted and one for the held-out figures of each device, and of all."""
    rows = []
    for kind in ("fitted", "held out"):
        parts: dict[str, list[Comparison]] = {}
        for comparison in comparisons:
            if _kind(comparison.figure.model) == kind:
                for title in (f"{comparison.figure.board} {comparison.figure.device}", "all"):
                    parts.setdefault(title, []).append(comparison)
        titles = sorted(parts, key=lambda title: (title == "all", title))
        rows += [_summary(title, kind, parts[title]) for title in titles]
    return rows


def _summary(title: str, kind: str, comparisons: Sequence[Comparison]) -> Row:
    ratios = [comparison.ratio for comparison in comparisons if not comparison.refusal]
    ranges = [comparison.is_in_range for comparison in comparisons if comparison.is_in_range is not None]
    statistics = {
        "mean": math.exp(sum(map(math.log, ratios)) / len(ratios)),
        "lowest": min(ratios),
        "highest": max(ratios),
        "within_20": sum(1 / CLOSE <= ratio <= CLOSE for ratio in ratios) / len(ratios),
    } if ratios else {}  # fmt: skip
    return {
        "device": title,
        "rows": kind + (" (few)" if kind == "held out" and len(ratios) < FEWEST else ""),
        "figures": len(ratios),
        "refused": len(comparisons) - len(ratios),
        **statistics,
        "in_range": sum(ranges) / len(ranges) if ranges else None,
    }


if __name__ == "__main__":
    main()
