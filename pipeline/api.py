"""The public functions: read, plan, build, load.  This is where the rooms meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.board import Board
from pipeline.errors import PlanError

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.plans import Plan
    from pipeline.scheduler.pipeline import Pipeline
    from pipeline.split.extract import Part
    from pipeline.split.graph import Graph


def _silent(_: str) -> None:
    pass


def read(
    path: str | Path,
    shapes: Mapping[str, Sequence[int]] | None = None,
    params: Mapping[str, Any] | str | Path | None = None,
) -> Graph:
    """Read a model, fold its constants and batch norms, and return its graph.

    Parameters
    ----------
    path : str or Path
        An ONNX file, a Relay program (text or JSON), or a Relax module (JSON); its content says which.
    shapes : mapping of str to sequence of int, optional
        Extents for inputs whose shape is symbolic in the file.
    params : mapping, str or Path, optional
        Parameters of a Relay program by name: arrays, or a file of ``relay.save_param_dict`` or ``numpy.savez``.
        What has no value here is an input of the model.

    Raises
    ------
    ModelError
        If the file is missing, not a model, or uses operators that are not supported; all of them are named.
    """
    import pipeline.tvm_access  # noqa: F401 - before the others import TVM, which would put its hooks in place
    from pipeline.split import frontends
    from pipeline.split.clean import clean
    from pipeline.split.graph import from_relax

    return from_relax(clean(frontends.load(Path(path), shapes, params)))


def plan(  # noqa: PLR0913 - all but the first two by keyword
    graph: Graph,
    board: Board | str = "host",
    *,
    stages: int | str = "auto",
    cuts: Sequence[str | int] | None = None,
    devices: Sequence[str] | None = None,
    queue_depth: int = 2,
    measure: bool = False,
    progress: Callable[[str], None] = _silent,
) -> Plan:
    """Divide a graph into stages and give each one a device and cores.

    Parameters
    ----------
    graph : Graph
    board : Board or str
        What it shall run on; ``"host"`` is this machine.
    stages : int or "auto"
        How many stages; the cuts are chosen so that the slowest stage is as fast as possible.  ``"auto"`` takes
        the fewest stages that come close to the best throughput, one stage where pipelining does not help.
    cuts : sequence of str or int, optional
        Cuts by tensor name, operator name, or position (the number of operators in front), instead of `stages`.
    devices : sequence of str, optional
        The board's device for each stage; its first one by default.
    queue_depth : int
        How many frames may wait in front of each stage.
    measure : bool
        Build and time each group of operators on the board's first device, instead of estimating.
    progress : callable, optional
        Told what is being done.

    Raises
    ------
    PlanError
        If a cut is unknown or not legal, or there are more stages than legal cuts allow.
    BoardError
        If the board or a device is unknown.
    """
    from pipeline.split.planner import make_plan

    if isinstance(board, str):
        import boards

        board = boards.get(board)
    seconds = _measured(graph, board, progress) if measure else None
    return make_plan(graph, board, stages=stages, cuts=cuts, devices=devices, queue_depth=queue_depth, seconds=seconds)


def _measured(graph: Graph, board: Board, progress: Callable[[str], None]) -> list[float]:
    from pipeline.executor.profile import measure
    from pipeline.plans import StagePlan
    from pipeline.split import extract

    device = board.devices[0]
    groups = extract.parts(graph, graph.group_ends[:-1])
    pairs = [
        (StagePlan(f"group{number}", device.name, part.inputs, part.outputs), extract.module(part))
        for number, part in enumerate(groups)
    ]
    return measure(pairs, device, progress)


def build(  # noqa: PLR0913 - all but the first two by keyword
    graph: Graph,
    plan: Plan,
    *,
    check: bool = True,
    tolerance: float = 1e-5,
    seed: int = 0,
    progress: Callable[[str], None] = _silent,
) -> Bundle:
    """Compile each stage of a plan for its device.

    Parameters
    ----------
    graph : Graph
        The one that the plan was made for.
    plan : Plan
    check : bool
        Compare the stages with the unsplit model on a seeded random frame; what was found is ``bundle.parity``.
    tolerance : float
        Largest allowed error, as a share of the largest output.
    seed : int
        Of the random frame.
    progress : callable, optional
        Told what is being done.

    Raises
    ------
    PlanError
        If the plan belongs to another graph, or its stages do not.
    BuildError
        If TVM cannot compile a stage, or the stages differ from the unsplit model.
    """
    from pipeline.executor.build import check_parity, compile_plan, compile_stage
    from pipeline.executor.bundle import Bundle
    from pipeline.plans import StagePlan
    from pipeline.split import extract

    parts = _parts(graph, plan)
    codes = compile_plan(plan, [extract.module(part) for part in parts], progress)
    stages = [(stage, code) for stage, code in zip(plan.stages, codes, strict=True) if code is not None]
    if not check or len(stages) < len(codes):
        return Bundle(plan, codes)
    progress("comparing with the unsplit model")
    unsplit = stages[0]
    if len(stages) > 1:
        (part,) = extract.parts(graph, [])
        whole = StagePlan("unsplit", plan.stages[0].device, part.inputs, part.outputs)
        unsplit = whole, compile_stage(extract.module(part), plan.board.device(whole.device))
    return Bundle(plan, codes, check_parity(plan, stages, unsplit, tolerance=tolerance, seed=seed))


def _parts(graph: Graph, plan: Plan) -> list[Part]:
    """Divide the graph as the plan says, after checking that it is the plan's own."""
    from pipeline.split import extract
    from pipeline.split.cuts import resolve

    index = {operator.name: number for number, operator in enumerate(graph.operators)}
    names = [name for stage in plan.stages for name in stage.operators]
    if plan.digest != graph.digest or any(name not in index for name in names):
        raise PlanError(
            f"the plan is for another model ({plan.model!r}) than {graph.name!r}, or for another version of it; "
            "plan again"
        )
    last = [stage.operators[-1] for stage in plan.stages[:-1] if stage.operators]
    parts = extract.parts(graph, resolve(graph, [index[name] + 1 for name in last]))
    for stage, part in zip_longest(plan.stages, parts):
        ends = () if part is None else (part.operators[0].name, part.operators[-1].name)
        if part is None or (stage.operators, stage.inputs, stage.outputs) != (ends, part.inputs, part.outputs):
            raise PlanError(f"stage {stage.name!r} is not what its operators make of {graph.name!r}; plan again")
    return parts


def load(bundle: Bundle | str | Path, **options: Any) -> Pipeline:
    """Return a running pipeline.

    Parameters
    ----------
    bundle : Bundle, str or Path
        A bundle, or the folder where one was saved.
    **options
        As for `pipeline.Pipeline`, such as ``trace``.

    Raises
    ------
    BundleError
        If the bundle is missing, damaged, or built for another kind of machine.
    """
    from pipeline.executor.bundle import Bundle
    from pipeline.scheduler.pipeline import Pipeline

    found = bundle if isinstance(bundle, Bundle) else Bundle.load(bundle)
    return Pipeline(found.plan, found.codes, **options)
