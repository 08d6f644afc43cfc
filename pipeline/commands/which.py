"""``soc-pipeline which``: the boards that a model keeps up on."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.commands.shared import console, models, values
from pipeline.errors import PlanError

if TYPE_CHECKING:
    from boards.published import PublishedFigure
    from pipeline.core.board.board import Board, Device
    from pipeline.core.plan.plan import Plan
    from pipeline.prediction.uncertainty import RateRange
    from pipeline.split.graph import Graph

HELP = (
    "Plan a model for every board that comes along, and say which keep up, by which runtime, at which power, and how "
    "that is known: measured, published by others, or estimated."
)
EXAMPLE = """soc-pipeline which model.onnx --fps 30
  soc-pipeline which yolov8n.onnx --fps 30 --task detect --boards rk3588,raspberry-pi-5-hailo,my-board.json"""

TASKS = {
    "detect": ("yolo", "ssd", "nanodet"),
    "segment": ("deeplab", "unet"),
    "classify": ("alexnet", "efficientnet", "googlenet", "inception", "mnasnet", "mobilenet", "resnet", "shufflenet",
                 "squeezenet", "vgg", "vit"),
}  # fmt: skip
"""Beginnings of the names of published networks, by task."""

COLUMNS = (
    "board", "keeps up", ">frames/s", ">90 % range", ">latency ms", "devices", "runtime", ">watts", "how known"
)  # fmt: skip

SHOWN = 4
"""Most networks named for a board."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    models.arguments(parser)
    parser.add_argument("--fps", metavar="N", type=values.positive, help="frames per second that must be kept up with")
    parser.add_argument(
        "--task", choices=sorted(TASKS), help="name published networks of this task, too, that keep up on each board"
    )
    parser.add_argument(
        "--boards", metavar="NAME,NAME", type=values.names,
        help="boards to plan for, also files, such as my-board.json of 'profile --export' (default: all shipped)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


@dataclass(frozen=True)
class BoardVerdict:
    """The best plan of a model on a board."""

    board: str
    keeps_up: str = "no"
    """``"yes"``, ``"maybe"`` where only a part of the range does, or ``"no"``; ``"yes"`` if nothing is asked for."""
    frames_per_s: float = 0.0
    latency_s: float = 0.0
    rate_range: RateRange | None = None
    devices: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    watts: float | None = None
    """Power of the board at the rate asked for, at most at its own; None where it is unknown."""
    basis: str = ""
    """Origin of the times: ``"measured"`` or ``"estimated"``."""
    published: tuple[PublishedFigure, ...] = ()
    """Published figures of this very network on this board."""
    networks: tuple[PublishedFigure, ...] = ()
    """Published figures of networks of the task that keep up, one for each, the fastest first."""
    reason: str = ""
    """Reason that it cannot run the model."""


def run(options: argparse.Namespace) -> int:
    """Plan for each board, and print."""
    import boards

    graph = models.read(options)
    names = options.boards or [name for name in boards.names() if name != boards.HOST]
    verdicts = []
    with console.progress("planning") as step:
        for number, name in enumerate(names, 1):
            step(f"planning for {name}, board {number} of {len(names)}")
            verdicts.append(judge_board(graph, name, options.fps, options.task))
    order = ("yes", "maybe", "no")
    verdicts.sort(key=lambda verdict: (order.index(verdict.keeps_up), -verdict.frames_per_s))
    console.print_json(verdicts) if options.json else _show(graph, verdicts, options.fps)
    return 0


def judge_board(graph: Graph, name: str, fps: float | None = None, task: str | None = None) -> BoardVerdict:
    """Return the verdict on a board by name or file."""
    import boards
    from boards.published import figures
    from pipeline.prediction.predict import predict
    from pipeline.prediction.uncertainty import rate_range

    board = boards.get(name)
    shipped = figures(name) if name in boards.names() else ()
    published = tuple(figure for figure in shipped if figure.model == _network(graph))
    networks = tuple(_best_figures(shipped, task, fps or 0.0)) if task else ()
    try:
        plan = _plan(graph, name, fps)
    except PlanError as error:
        return BoardVerdict(board.name, published=published, networks=networks, reason=str(error))
    prediction, share = predict(plan), rate_range(plan)
    low, rate = (share.low if share else prediction.frames_per_s), prediction.frames_per_s
    used = [device for device in board.devices if any(device.is_called(unit.device) for unit in plan.units)]
    return BoardVerdict(
        board.name,
        "yes" if low >= (fps or 0.0) else "maybe" if (share.high if share else rate) >= (fps or 0.0) else "no",
        rate,
        prediction.latency_s,
        share,
        tuple(dict.fromkeys(unit.device for unit in plan.units)),
        tuple(dict.fromkeys(map(_runtime, used))),
        _watts(board, prediction.joules, min(fps or rate, rate)),
        "measured" if plan.measured or any(file.seconds for file in graph.compiled) else "estimated",
        published,
        networks,
    )


def _plan(graph: Graph, board: str, fps: float | None) -> Plan:
    """Return the plan of least latency that keeps up, else the fastest one."""
    from pipeline.workflow.plan import plan

    if fps:
        try:
            return plan(graph, board, fps=fps)
        except PlanError:
            pass
    return plan(graph, board)


def _network(graph: Graph) -> str:
    """Return a model's name as published figures spell it."""
    return graph.name.casefold().replace("-", "_")


def _best_figures(figures: Sequence[PublishedFigure], task: str, fps: float) -> Iterator[PublishedFigure]:
    fastest: dict[str, PublishedFigure] = {}
    for figure in sorted(figures, key=lambda figure: figure.seconds):
        if figure.model.startswith(TASKS[task]) and figure.seconds * fps <= 1:
            fastest.setdefault(figure.model, figure)
    yield from fastest.values()


def _runtime(device: Device) -> str:
    """Return what runs a device's stages."""
    target = device.target or {}
    kind = device.capabilities
    return str(target.get("loader") or (device.kind if kind.model_format or kind.planning else "tvm"))


def _watts(board: Board, joules: float | None, fps: float) -> float | None:
    return None if joules is None else sum(device.watts_idle for device in board.devices) + joules * fps


def _show(graph: Graph, verdicts: Sequence[BoardVerdict], fps: float | None) -> None:
    out = console.console()
    asked = f" at {fps:g} frames/s" if fps else ""
    table = console.table(f"{graph.name}{asked}", *COLUMNS)
    for verdict in verdicts:
        if not verdict.reason:
            table.add_row(*_row(verdict, has_rate=bool(fps)))
    out.print(table)
    for verdict in verdicts:
        if verdict.networks:
            names = [f"{figure.model} {1 / figure.seconds:.4g} ({figure.precision})" for figure in verdict.networks]
            rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            out.print(f"{verdict.board}, published frames/s: {', '.join(names[:SHOWN])}{rest}", soft_wrap=True)
        if verdict.reason:
            out.print(f"{verdict.board}: {verdict.reason}", soft_wrap=True)


def _row(verdict: BoardVerdict, *, has_rate: bool) -> tuple[str, ...]:
    share = verdict.rate_range
    basis = [verdict.basis + (f" by {share.figures} figures" if share else "")]
    basis += [
        f"published {1 / figure.seconds:.4g} ({figure.device}, {figure.precision})" for figure in verdict.published
    ]
    return (
        verdict.board,
        verdict.keeps_up if has_rate else "-",
        f"{verdict.frames_per_s:.4g}",
        f"{share.low:.3g} to {share.high:.3g}" if share else "-",
        f"{verdict.latency_s * 1e3:.3g}",
        ", ".join(verdict.devices),
        ", ".join(verdict.runtimes),
        "?" if verdict.watts is None else f"{verdict.watts:.2g}",
        "; ".join(basis),
    )
