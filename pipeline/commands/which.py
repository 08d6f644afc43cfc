"""``soc-pipeline which``: the boards that a model keeps up on."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.commands.shared import console, models, plan_options, values
from pipeline.errors import PlanError

if TYPE_CHECKING:
    from boards.published import PublishedFigure
    from pipeline.core.board.board import Device
    from pipeline.core.plan.plan import Plan
    from pipeline.prediction.uncertainty import RateRange
    from pipeline.split.graph import Graph
    from pipeline.split.planning.planner import Planner

HELP = (
    "Plan a model for every board that comes along, and say which keep up, by which runtime, at which power, and how "
    "that is known: measured, compiled (its compiler counts cycles), published by others, or estimated."
)
EXAMPLE = "soc-pipeline which yolov8n.onnx --fps 30 --task detect --boards rk3588,raspberry-pi-5-hailo,my-board.json"

TASKS = {"detect": ("yolo", "ssd", "nanodet"), "segment": ("deeplab", "unet")}
"""Beginnings of the names of published networks, by task; all others classify."""

SHOWN = 4
"""Most networks named for a board."""

COLUMNS = (
    "board", "keeps up", ">frames/s", ">90 % range", ">latency ms", "devices", "runtime", ">watts", "how known"
)  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    models.arguments(parser)
    parser.add_argument("--fps", metavar="N", type=values.positive, help="frames per second that must be kept up with")
    parser.add_argument(
        "--task", choices=(*TASKS, "classify"), help="name published networks of this task, too, that keep up"
    )
    parser.add_argument(
        "--boards", metavar="NAME,NAME", type=values.names,
        help="boards to plan for, also files, such as my-board.json of 'profile --export' (default: all shipped)",
    )  # fmt: skip
    plan_options.tool_argument(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


@dataclass(frozen=True)
class BoardVerdict:
    """The best plan of a model on a board."""

    board: str
    published: Sequence[PublishedFigure]
    """Figures of this very network on this board."""
    networks: Sequence[PublishedFigure]
    """Figures of networks of the task that keep up, the fastest first."""
    reason: str = ""
    """Reason that the board cannot run the model; empty if it can."""
    keeps_up: str = "no"
    """``"yes"``, ``"maybe"`` where only a part of the range does, or ``"no"``; ``"yes"`` if nothing is asked for."""
    frames_per_s: float = 0.0
    latency_s: float = 0.0
    rate_range: RateRange | None = None
    devices: Sequence[str] = ()
    runtimes: Sequence[str] = ()
    watts: float | None = None
    """Power at the rate asked for, at most at its own; None where it is unknown."""
    basis: str = ""
    """Origin of the times: ``"measured"``, ``"compiled"`` where a compiler has counted cycles, or ``"estimated"``."""


def run(options: argparse.Namespace) -> int:
    """Plan for each board, and print."""
    import boards

    graph = models.read(options)
    names = list(dict.fromkeys(options.boards or [name for name in boards.names() if name != boards.HOST]))
    # A wrong name is refused before the others are planned for.
    for name in names:
        boards.get(name)
    verdicts = []
    with console.progress("planning") as step:
        for number, name in enumerate(names, 1):
            step(f"planning for {name}, board {number} of {len(names)}")
            verdicts.append(judge_board(graph, name, options.fps or 0.0, options.task, dict(options.tool)))
    order = ("yes", "maybe", "no")
    verdicts.sort(key=lambda verdict: (order.index(verdict.keeps_up), -verdict.frames_per_s))
    console.print_json(verdicts) if options.json else _show(f"{graph.name} at {options.fps or 0:g} frames/s", verdicts)
    return 0


def judge_board(graph: Graph, name: str, fps: float, task: str | None, tools: Mapping[str, str]) -> BoardVerdict:
    """Return the verdict on a board of a name or file."""
    import boards
    from boards.published import figures
    from pipeline.prediction.predict import predict
    from pipeline.prediction.uncertainty import rate_range

    board = boards.get(name)
    fastest_first = sorted(figures(name) if name in boards.names() else (), key=lambda figure: figure.seconds)
    network = graph.name.casefold().replace("-", "_")
    published = [figure for figure in fastest_first if figure.model == network]
    of_task = [figure for figure in fastest_first if task == _task(figure.model) and figure.seconds * fps <= 1]
    best_figures = {figure.model: figure for figure in reversed(of_task)}
    networks = sorted(best_figures.values(), key=lambda figure: figure.seconds)
    try:
        planner, plan = _plan(graph, name, fps, tools)
    except PlanError as error:
        return BoardVerdict(board.name, published, networks, str(error))
    prediction, share = predict(plan), rate_range(plan)
    rate, joules = prediction.frames_per_s, prediction.joules
    low, high = (share.low, share.high) if share else (rate, rate)
    idle = sum(device.watts_idle for device in board.devices)
    used = [device for device in board.devices if any(device.is_called(unit.device) for unit in plan.units)]
    return BoardVerdict(
        board.name,
        published,
        networks,
        keeps_up="yes" if low >= fps else "maybe" if high >= fps else "no",
        frames_per_s=rate,
        latency_s=prediction.latency_s,
        rate_range=share,
        devices=[device.name for device in used],
        runtimes=list(dict.fromkeys(map(_runtime, used))),
        watts=None if joules is None else idle + joules * min(fps or rate, rate),
        basis=_origin(planner, plan, used),
    )


def _task(network: str) -> str:
    return next((task for task, beginnings in TASKS.items() if network.startswith(beginnings)), "classify")


def _plan(graph: Graph, board: str, fps: float, tools: Mapping[str, str]) -> tuple[Planner, Plan]:
    """Return the plan of least latency that keeps up, else the fastest one, behind its planner."""
    from pipeline.workflow.plan import PlannerOptions, make_planner

    planner = make_planner(graph, board, PlannerOptions(tools=tools))
    try:
        return planner, planner.plan(fps=fps or None)
    except PlanError:
        return planner, planner.plan()


def _origin(planner: Planner, plan: Plan, used: Sequence[Device]) -> str:
    if plan.measured or any(file.seconds for file in planner.graph.compiled):
        return "measured"
    return "compiled" if any(planner.basis(device.name) == "compiled" for device in used) else "estimated"


def _runtime(device: Device) -> str:
    """Return what runs a device's stages."""
    kind = device.capabilities
    return str((device.target or {}).get("loader") or (device.kind if kind.model_format or kind.planning else "tvm"))


def _show(title: str, verdicts: Sequence[BoardVerdict]) -> None:
    out, table = console.console(), console.table(title, *COLUMNS)
    for verdict in verdicts:
        if not verdict.reason:
            table.add_row(*_row(verdict))
    out.print(table)
    for verdict in verdicts:
        if names := [f"{figure.model} {1 / figure.seconds:.4g} ({figure.precision})" for figure in verdict.networks]:
            rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            out.print(f"{verdict.board}, published frames/s: {', '.join(names[:SHOWN])}{rest}", soft_wrap=True)
        if verdict.reason:
            out.print(f"{verdict.board}: {verdict.reason}", soft_wrap=True)


def _row(verdict: BoardVerdict) -> tuple[str, ...]:
    share = verdict.rate_range
    published = [f"published {1 / row.seconds:.4g} ({row.device}, {row.precision})" for row in verdict.published]
    return (
        verdict.board,
        verdict.keeps_up,
        f"{verdict.frames_per_s:.4g}",
        f"{share.low:.3g} to {share.high:.3g}" if share else "-",
        f"{verdict.latency_s * 1e3:.3g}",
        ", ".join(verdict.devices),
        ", ".join(verdict.runtimes),
        "?" if verdict.watts is None else f"{verdict.watts:.2g}",
        "; ".join([verdict.basis + (f" by {share.figures} figures" if share else ""), *published]),
    )
