"""Verb plan: divides a graph into stages, by estimates or measurements."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pipeline.core.board.board import Board
from pipeline.core.renaming import refuse_renamed
from pipeline.errors import PlanError
from pipeline.split.planning.problem.queues import TIME_CV
from pipeline.workflow.make_planner import make_planner

if TYPE_CHECKING:
    from pipeline.core.plan.plan import Plan
    from pipeline.split.graph import Graph
    from pipeline.split.planning.planner import Planner

logger = logging.getLogger(__name__)

__all__ = ["make_planner", "plan"]


@refuse_renamed(variance="cv")
def plan(  # noqa: PLR0913 - all but the first two by keyword
    graph: Graph,
    board: Board | str = "host",
    *,
    stages: int | str = "auto",
    cuts: Sequence[str | int] | None = None,
    allow_unfused: bool = False,
    devices: Sequence[str] | None = None,
    pin: Mapping[str, str] | None = None,
    queue_depth: int | str = "auto",
    cv: float = TIME_CV,
    measure: bool = False,
    runtimes: Sequence[str] = (),
    objective: str | None = None,
    fps: float | None = None,
    replicas: bool = True,
    heterogeneous: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Plan:
    """Divide a graph into stages with devices and cores.

    Parameters
    ----------
    graph : Graph
    board : Board or str
        What it shall run on; ``"host"`` is this machine.
    stages : int, "auto" or "models"
        How many; the cuts are chosen so that the slowest stage is as fast as possible.  ``"auto"`` chooses
        cuts, devices, cores, threads and replicas: the fewest stages that come close to the best, one stage where
        pipelining does not help.  ``"models"`` makes a stage of each model of a `pipeline.chain`.
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
        How many frames may wait in front of each stage.  ``"auto"`` chooses for each the fewest with which its queue
        costs at most 1.5 % of the frame rate, as stages' times vary, and as far as there is memory.
    cv : float
        By how much they vary: coefficient of variation of a stage's time, its standard deviation as a share of it.
    measure : bool
        Build and time each group of operators on the board's devices that are here, instead of estimating.
    runtimes : sequence of str
        What may execute stages on CPU cores: ``"tvm"``, ``"onnxruntime"``, ``"openvino"`` or ``"litert"``, instead of
        the board's own choice.  Which one is the fastest for each stage is measured, with `measure`; without, it is the
        first one.
    objective : str, optional
        What ``"auto"`` aims at: ``"throughput"`` (default), ``"latency"`` (default with `fps`) or ``"energy"``.
    fps : float, optional
        How many frames per second arrive and must be kept up with.
    replicas : bool
        Whether ``"auto"`` may run a stage on several frames at once, each on cores of its own.
    heterogeneous : bool
        Whether workers of ``"auto"`` may borrow devices, where that is faster than a chain of stages.
    progress : callable, optional
        Told what is being done.

    Raises
    ------
    PlanError
        If a cut is unknown or not legal, a pin unknown or impossible, there are more stages than legal cuts allow, or
        the board cannot run the model, or not as fast as `fps`.
    BoardError
        If the board or a device is unknown.
    """
    from pipeline.measure.plausibility import choose_plausible

    stages, cuts = _resolve_cuts(graph, stages, cuts, allow_unfused=allow_unfused)

    def make(fresh: bool) -> Planner:
        """Return the planner, with measured costs if requested."""
        return make_planner(
            graph,
            board,
            measure=measure,
            runtimes=runtimes,
            fresh=fresh,
            queue_depth=queue_depth,
            cv=cv,
            unfused=(cuts or ()) if allow_unfused else (),
            pin=pin,
            progress=progress,
        )

    request = {
        "stages": stages,
        "cuts": cuts,
        "devices": devices,
        "objective": objective,
        "fps": fps,
        "replicas": replicas,
        "heterogeneous": heterogeneous,
    }
    # Which runtime is the fastest, where they were measured: by plans that stream in turns.
    return choose_plausible(make, request, progress=progress, warn=logger.warning).plan


def _resolve_cuts(
    graph: Graph, stages: int | str, cuts: Sequence[str | int] | None, *, allow_unfused: bool
) -> tuple[int | str, Sequence[str | int] | None]:
    """Return stage count and cuts, with a stage per chained model."""
    if stages == "models":
        # The ends of the models are cuts like others; devices and cores are still chosen.
        stages, cuts = "auto", _between_models(graph, cuts)
    if allow_unfused and cuts is None:
        raise PlanError("allow_unfused allows cuts inside of fused groups, but no cuts are given; give cuts=[...]")
    return stages, cuts


def _between_models(graph: Graph, cuts: Sequence[str | int] | None) -> Sequence[int]:
    if not graph.model_ends:
        raise PlanError(f"stages is 'models', but {graph.name!r} is one model; connect several by pipeline.chain")
    if cuts is not None:
        raise PlanError("stages='models' says where to cut; leave out cuts")
    # Behind the last model there is nothing left to cut.
    return graph.model_ends[:-1]
