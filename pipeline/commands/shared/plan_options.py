"""Plan options: how to cut a model, and its devices."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pipeline.commands.shared import stage_options, targets, values
from pipeline.commands.shared.console import Progress, notice, progress
from pipeline.core.plan.stage_options import StageOptions
from pipeline.core.renaming import add_renamed_option
from pipeline.errors import PlanError

if TYPE_CHECKING:
    from pipeline.core.plan.plan import Plan
    from pipeline.split.graph import Graph
    from pipeline.split.planning.planner import Planner
    from pipeline.split.planning.problem.request import PlanChoices

TIME_VARIATION = 0.1
"""Coefficient of variation of stages that nothing is known about."""

PLANNING = {
    "--stages": "auto",
    "--cut": None,
    "--allow-unfused": None,
    "--devices": None,
    "--pin": None,
    "--objective": None,
    "--fps": None,
    "--no-replicas": None,
    "--no-borrowing": None,
    "--queue-depth": "auto",
    "--time-variation": TIME_VARIATION,
    "--measure": None,
    "--runtimes": None,
    "--tool": None,
    "--fresh": None,
}
"""Options already settled by a plan's file, with their defaults; None where there is nothing unless it is asked for.

Not ``--board`` and ``--target``: a plan's commands are run if they are those of that board.
"""


def arguments(parser: argparse._ActionsContainer, *, rate: bool = True) -> None:
    """Add the options of cuts and devices; without `rate` none for the frames that arrive."""
    _cut_arguments(parser)
    _board_arguments(parser)
    _aim_arguments(parser, rate=rate)
    _time_arguments(parser)


def _cut_arguments(parser: argparse._ActionsContainer) -> None:
    # A number of stages leaves the cuts to the planner, names give them: both would contradict each other.
    cut_group = parser.add_mutually_exclusive_group()
    cut_group.add_argument(
        "--stages", metavar="N", type=values.count_or_auto, default="auto", help="number of stages, or 'auto' (default)"
    )
    cut_group.add_argument(
        "--cut",
        metavar="NAME",
        action="append",
        help="cut behind this tensor, operator or position ('inspect' lists them); may be repeated",
    )
    parser.add_argument(
        "--allow-unfused",
        action="store_true",
        help="cut exactly behind the names of --cut, also inside of what the compiler fuses; 'plan' says what it costs",
    )


def _board_arguments(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--board", default="host", help="what to run on (default: host, this machine)")
    parser.add_argument(
        "--devices",
        metavar="NAME,NAME",
        type=values.names,
        help="the board's device for each stage; 'cpu+vta' is one on cores of the CPU whose workers borrow VTA",
    )
    targets.argument(parser)
    stage_options.arguments(parser)
    parser.add_argument(
        "--pin",
        metavar="NAME=DEVICE",
        type=values.pair("conv1=cpu"),
        action="append",
        default=[],
        help="run an operator, what makes a tensor, or a module on this device of the board, such as conv1=cpu; may be "
        "repeated",
    )


def _aim_arguments(parser: argparse._ActionsContainer, *, rate: bool) -> None:
    # Only automatic stages have something to aim at.
    parser.add_argument(
        "--objective",
        choices=("throughput", "latency", "energy"),
        help="what automatic stages aim at (default: throughput; with --fps: latency)",
    )
    if rate:
        parser.add_argument(
            "--fps", metavar="N", type=values.positive, help="frames per second that arrive and must be kept up with"
        )
    parser.add_argument(
        "--no-replicas", action="store_true", help="let each automatic stage work on one frame at a time only"
    )
    parser.add_argument(
        "--no-borrowing", action="store_true", help="let no automatic stage borrow another device inside of a frame"
    )


def _time_arguments(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--queue-depth",
        metavar="N",
        type=values.count_or_auto,
        default="auto",
        help="frames that may wait in front of each stage, or 'auto' (default): as many as --time-variation asks for",
    )
    add_time_variation(parser, default=TIME_VARIATION)
    parser.add_argument(
        "--measure",
        action="store_true",
        help="time the operators here instead of estimating; what 'profile' or an earlier plan measured is known",
    )
    parser.add_argument(
        "--runtimes",
        metavar="NAME,NAME",
        type=values.runtimes,
        default=(),
        help="what may run stages on CPU cores: tvm, onnxruntime, openvino, ncnn, litert; the fastest one by --measure",
    )
    tool_argument(parser)
    parser.add_argument("--fresh", action="store_true", help="as --measure, and measure again what was measured before")


def tool_argument(parser: argparse._ActionsContainer) -> None:
    """Add the option of vendors' compilers."""
    parser.add_argument(
        "--tool",
        metavar="NAME=PYTHON",
        type=values.tool,
        action="append",
        default=[],
        help="count a board's cycles by a vendor's compiler, rknn or vela, in this Python's environment, such as "
        "rknn=.venv/rknn/bin/python; may be repeated",
    )


def add_time_variation(parser: argparse._ActionsContainer, default: float) -> None:
    """Add the option of stage time variation."""
    parser.add_argument(
        "--time-variation",
        metavar="CV",
        type=values.not_negative,
        default=default,
        help="coefficient of variation of a stage's time: its standard deviation, as a share of it "
        f"(default: {default:g})",
    )
    add_renamed_option(parser, "--variance", "--time-variation")


def file_argument(parser: argparse._ActionsContainer) -> None:
    """Add the plan's file, as alternative to planning options."""
    parser.add_argument("--plan", metavar="FILE", help="a plan from 'soc-pipeline plan'; without it, plan now")


def check_file(options: argparse.Namespace) -> None:
    """Raise `PlanError` for options silently overruled by a plan's file."""
    idle = [name for name, default in PLANNING.items() if (getattr(options, _attribute(name)) or None) != default]
    if options.plan and idle:
        raise PlanError(f"--plan already says where to cut and what runs where; leave out {', '.join(idle)}")


def _attribute(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def load_or_make_plan(graph: Graph, options: argparse.Namespace) -> Plan:
    """Read the plan's file, or plan now."""
    from pipeline.core.plan.plan import Plan

    if not options.plan:
        return make_plan(graph, options)
    plan = Plan.load(options.plan).complete_options(StageOptions.of_build(vars(options)))
    return stage_options.apply(plan, options)


def make_plan(graph: Graph, options: argparse.Namespace) -> Plan:
    """Plan as the options say."""
    from pipeline.split.unfused import divided_groups

    with progress("planning") as step:
        planner, plan = make_planner_and_plan(graph, options, step)
    for group in divided_groups(planner.graph):
        notice(str(group))
    return plan


def make_planner_and_plan(graph: Graph, options: argparse.Namespace, step: Progress) -> tuple[Planner, Plan]:
    """Return the options' planner and plan."""
    from pipeline.measure.plausibility import choose_plausible
    from pipeline.split.planning.advice.stage_times import with_times
    from pipeline.workflow.plan import PlannerOptions, make_planner

    if options.allow_unfused and not options.cut:
        raise PlanError("--allow-unfused allows cuts inside of fused groups, but there are none; give --cut NAME")
    planner_options = PlannerOptions(
        measure=options.measure or options.fresh,
        runtimes=options.runtimes,
        tools=dict(options.tool),
        queue_depth=options.queue_depth,
        cv=options.time_variation,
        pin=dict(options.pin),
        unfused=options.cut if options.allow_unfused else (),
        stage_options=StageOptions.of_build(vars(options)),
    )
    choices: PlanChoices = {
        "stages": options.stages,
        "cuts": options.cut,
        "devices": options.devices,
        "objective": options.objective,
        "fps": options.fps,
        "replicas": not options.no_replicas,
        "heterogeneous": not options.no_borrowing,
    }

    def make(fresh: bool) -> Planner:
        # By name, a measured board has its times with it.
        board = targets.board(options) if options.target else options.board
        return make_planner(graph, board, planner_options, fresh=fresh, progress=step)

    choice = choose_plausible(make, choices, fresh=options.fresh, progress=step, warn=notice)
    plan = stage_options.apply(choice.plan, options)
    # Cuts are those of all stages' options; the times are those of each one's.
    return choice.planner, with_times(choice.planner, plan).plan if options.stage_option else plan
