"""Verb plan: divides a graph into stages, by estimates or measurements."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pipeline.core import arguments
from pipeline.core.board.board import Board
from pipeline.core.board.board_file import EXPORT_SUFFIX
from pipeline.core.plan.stage_options import NO_OPTIONS, StageOptions, accept_old_options
from pipeline.core.renaming import refuse_renamed
from pipeline.errors import PlanError
from pipeline.measure.sampling import FULL, Sampling
from pipeline.split.planning.problem.queues import TIME_CV
from pipeline.split.planning.problem.request import PlanChoices

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pipeline.core.plan.plan import Plan
    from pipeline.measure.profile import Profile
    from pipeline.split.graph import Graph
    from pipeline.split.planning.planner import Planner

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlannerOptions:
    """Options of a planner; see `plan` for the same names."""

    measure: bool = False
    runtimes: Sequence[str] = ()
    tools: Mapping[str, str] | None = None
    queue_depth: int | str = "auto"
    cv: float = TIME_CV
    pin: Mapping[str, str] | None = None
    unfused: Sequence[str | int] = ()
    """Cuts that divide fused groups."""
    sampling: Sampling = FULL
    """Number and length of a time's measurements."""
    stage_options: StageOptions = NO_OPTIONS
    """Build options of all stages, which are planned with."""


class PlanKeywords(PlanChoices, total=False):
    """Keyword arguments of `plan`."""

    allow_unfused: bool
    pin: Mapping[str, str] | None
    queue_depth: int | str
    cv: float
    measure: bool
    runtimes: Sequence[str]
    tools: Mapping[str, str] | None
    precision: str
    weights: str
    progress: Callable[[str], None]


@refuse_renamed(variance="cv")
@accept_old_options
@arguments.names_keywords("plan", PlanKeywords)
def plan(graph: Graph, board: Board | str = "host", **options: Unpack[PlanKeywords]) -> Plan:
    """Divide a graph into stages with devices and cores.

    Parameters
    ----------
    graph : Graph
    board : Board or str
        Board to run on; ``"host"`` is this machine.

    Other Parameters
    ----------------
    stages : int, "auto" or "models"
        Number of stages; the cuts are chosen so that the slowest stage is as fast as possible.  ``"auto"`` (default)
        chooses cuts, devices, cores, threads and replicas: the fewest stages that come close to the best, one stage
        where pipelining does not help.  ``"models"`` makes a stage of each model of a `pipeline.chain`.
    cuts : sequence of str or int, optional
        Cuts by tensor name, operator name, or position (the number of operators in front), instead of `stages`.
        A name inside of what the compiler fuses stands for the end of that group.
    allow_unfused : bool
        Cut exactly behind the names in `cuts`, also where that divides a fused group: its parts are kernels of their
        own then, which write to memory and read again what else never leaves the processor.
    devices : sequence of str, optional
        The board's device for each stage; by default those that suit best, and for given cuts the first one
        that `pin` allows.  ``"cpu+vta"`` is a stage on the CPU whose workers borrow another device, step by step inside
        of one frame.
    pin : mapping of str to str, optional
        The device that has to run an operator, what makes a tensor, or a module, such as ``{"conv1": "cpu"}``.  Relay's
        ``on_device`` annotations pin what they annotate to a device of the kind that they name, unless this says
        something else of it; a key such as ``"cuda:0"`` says what device stands for one that they name.
    queue_depth : int or "auto"
        Frames that may wait in front of each stage.  ``"auto"`` (default) chooses for each the fewest with which its
        queue costs at most 1.5 % of the frame rate, as stages' times vary, and as far as there is memory.
    cv : float
        Coefficient of variation of a stage's time: its standard deviation as a share of it, 0.1 by default.
    measure : bool
        Build and time each group of operators on the board's devices that are here, instead of estimating.
    runtimes : sequence of str
        Runtimes for stages on CPU cores: ``"tvm"``, ``"onnxruntime"``, ``"openvino"``, ``"ncnn"`` or ``"litert"``,
        instead of the board's own choice.  Which one is the fastest for each stage is measured, with `measure`;
        without, it is the first one.
    tools : mapping of str to str
        Pythons of vendors' compilers, which count a device's cycles, such as ``{"rknn": "rknn/bin/python"}``.  They
        come before those that environment variables name.
    objective : str, optional
        Aim of ``"auto"``: ``"throughput"`` (default), ``"latency"`` (default with `fps`) or ``"energy"``.
    fps : float, optional
        Frames per second that arrive and must be kept up with.
    replicas : bool
        True if ``"auto"`` may run a stage on several frames at once (default), each on cores of its own.
    heterogeneous : bool
        True if workers of ``"auto"`` may borrow devices (default), where that is faster than a chain of stages.
    precision : str
        Option of `pipeline.build` that changes the time of its kernels.  Times are estimated or measured with it, and
        the plan's stages keep it.
    progress : callable, optional
        Function to call with the present activity.

    Raises
    ------
    PlanError
        If a cut is unknown or not legal, a pin unknown or impossible, there are more stages than legal cuts allow, or
        the board cannot run the model, or not as fast as `fps`.
    BoardError
        If the board or a device is unknown, or a Python of `tools` has no such compiler.
    """
    from pipeline.measure.plausibility import choose_plausible

    choices = cast("PlanChoices", _select(options, PlanChoices.__optional_keys__))
    if choices.get("stages") == "models":
        # The ends of the models are cuts like others; devices and cores are still chosen.
        choices |= {"stages": "auto", "cuts": _between_models(graph, choices.get("cuts"))}
    planner_options = _select(options, [field.name for field in fields(PlannerOptions)])
    if options.get("allow_unfused"):
        if choices.get("cuts") is None:
            raise PlanError("allow_unfused allows cuts inside of fused groups, but no cuts are given; give cuts=[...]")
        planner_options["unfused"] = choices["cuts"]
    planner_options["stage_options"] = StageOptions.of_build(options)
    progress = options.get("progress", lambda _: None)

    def make(fresh: bool) -> Planner:
        return make_planner(graph, board, PlannerOptions(**planner_options), fresh=fresh, progress=progress)

    # Which runtime is the fastest, where they were measured: by plans that stream in turns.
    return choose_plausible(make, choices, progress=progress, warn=logger.warning).plan


def make_planner(
    graph: Graph,
    board: Board | str = "host",
    options: PlannerOptions = PlannerOptions(),
    *,
    fresh: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Planner:
    """Make a planner from estimates or from measured times.

    Devices that other runtimes drive are asked what they run.  Earlier measurements and answers are taken from the
    user's cache, unless `fresh` ones are wanted. Raises `BoardError` if the board is unknown; `PlanError` if a name of
    `options.unfused` or `options.pin` is, or pins contradict each other.
    """
    from pipeline.measure.quotes import Quotes, find_quotes
    from pipeline.measure.refusals import find_refusals
    from pipeline.measure.server_slots import ask_slots
    from pipeline.split.planning.planner import Planner
    from pipeline.split.planning.problem.pins import resolve_pins
    from pipeline.split.unfused import unfuse

    board_name = board if isinstance(board, str) else ""
    # Before anything is measured, since times are those of kernels, and there are others in a divided group.
    graph, board = unfuse(graph, options.unfused), ask_slots(_resolve_board(board, options.runtimes))
    pins = resolve_pins(graph, board, options.pin)
    from_file = _read_profile(board_name, graph)
    asks = partial(find_refusals, graph, board, runtimes=options.measure, fresh=fresh, progress=progress)
    refusals = {} if from_file else asks()
    # As answers are, these are in a profile's times.
    quotes = Quotes() if from_file else find_quotes(
        graph, board, tools=options.tools, fresh=fresh, progress=progress
    )  # fmt: skip
    refusals |= quotes.refusals
    depth, cv, stage_options = options.queue_depth, options.cv, options.stage_options
    make = partial(
        Planner, graph, queue_depth=depth, cv=cv, pins=pins, refusals=refusals, options=stage_options,
        estimates=quotes.seconds, compiled=tuple(quotes.seconds), notes=quotes.notes,
    )  # fmt: skip
    if not options.measure and not from_file:
        return make(board)
    from pipeline.measure.profile import profile

    times = from_file or profile(
        graph, board, fresh=fresh, refusals=refusals, progress=progress, sampling=options.sampling,
        stage_options=stage_options,
    )  # fmt: skip
    # With the rates that were measured on the way, in place of those in the file of the board.
    return make(times.board, isolated=times.measured, contended=times.contended, spans=times.spans)


def _resolve_board(board: Board | str, runtimes: Sequence[str]) -> Board:
    if isinstance(board, str):
        import boards

        board = boards.get(board)
    return board.with_runtimes(runtimes) if runtimes else board


def _read_profile(board_name: str, graph: Graph) -> Profile | None:
    """Return the times in an exported board's file; None for other boards and other models."""
    if not board_name.endswith(EXPORT_SUFFIX):
        return None
    from pipeline.measure.board_export import read_profile

    return read_profile(board_name, graph)


def _select(options: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in names}


def _between_models(graph: Graph, cuts: Sequence[str | int] | None) -> Sequence[int]:
    if not graph.model_ends:
        raise PlanError(f"stages is 'models', but {graph.name!r} is one model; connect several by pipeline.chain")
    if cuts is not None:
        raise PlanError("stages='models' says where to cut; leave out cuts")
    # Behind the last model there is nothing left to cut.
    return graph.model_ends[:-1]
