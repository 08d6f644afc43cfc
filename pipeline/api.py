"""The public functions: read, plan, build, load.  This is where the rooms meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.board import Board

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.executor.code import StageCode
    from pipeline.executor.general import StageGeneral
    from pipeline.plans import Plan, StagePlan
    from pipeline.scheduler.pipeline import Pipeline
    from pipeline.split.extract import Part
    from pipeline.split.graph import Graph


def _silent(_: str) -> None:
    pass


def read(
    model: Any,
    shapes: Mapping[str, Sequence[int]] | None = None,
    params: Mapping[str, Any] | str | Path | None = None,
    *,
    verify: bool = False,
) -> Graph:
    """Read a model, fold its constants and batch norms, and return its graph.

    Parameters
    ----------
    model : str, Path, or torch.export.ExportedProgram
        An ONNX file, a TFLite model, a file of ``torch.export.save``, a Relay program (text or JSON), or a Relax
        module (JSON), whose content says which; or an exported PyTorch program itself.
    shapes : mapping of str to sequence of int, optional
        Extents for inputs whose shape is symbolic in the model.
    params : mapping, str or Path, optional
        Parameters of a Relay program by name: arrays, or a file of ``relay.save_param_dict`` or ``numpy.savez``.
        What has no value here is an input of the model.
    verify : bool
        Compare with the library that the format belongs to, on random input; see `pipeline.verify`.

    Raises
    ------
    ModelError
        If the file is missing, not a model, or uses operators that are not supported; all of them are named.
    BuildError
        If the model as it was read computes something else.
    """
    import pipeline.tvm_access  # noqa: F401 - before the others import TVM, which would put its hooks in place
    from pipeline.split import frontends
    from pipeline.split.clean import clean
    from pipeline.split.graph import from_relax

    graph = from_relax(clean(frontends.load(model, shapes, params)))
    if verify:
        from pipeline import verification

        verification.verify(graph, model)
    return graph


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
    tolerance: float | None = None,
    seed: int = 0,
    tuning: str | Path | None = None,
    winograd: bool = False,
    weights: str = "float32",
    progress: Callable[[str], None] = _silent,
) -> Bundle:
    """Compile each stage of a plan for its device.

    Parameters
    ----------
    graph : Graph
        The one that the plan was made for.
    plan : Plan
    check : bool
        Compare the stages with the unsplit model on a seeded random frame; what was found is ``bundle.parity``, None
        for stages that this machine cannot run.  Without it, nothing is run, and ``bundle.general`` has no shares.
    tolerance : float, optional
        Largest allowed error, as a share of the largest output; by default 1e-5, 1e-4 with `winograd`, 5e-3 with
        weights as float16, 5e-2 as bfloat16.
    seed : int
        Of the random frame.
    tuning : str or Path, optional
        A database of `pipeline.tune`, whose kernels are used where they were measured to be faster.
    winograd : bool
        Compute 3x3 convolutions by Winograd's transforms where that takes fewer cycles; see
        `pipeline.executor.numerics.Numerics` for the error.
    weights : str
        What weights of convolutions and dense layers are stored as: ``"float32"``, ``"float16"`` or ``"bfloat16"``.
        Half as many bytes are read, and sums stay float32.
    progress : callable, optional
        Told what is being done.

    Returns
    -------
    Bundle
        Its ``general`` has, for each stage, the operators that have no kernel of their own, and their share of the
        stage's time; see `pipeline.executor.general.StageGeneral`.

    Raises
    ------
    PlanError
        If the plan belongs to another graph, or its stages do not.
    BuildError
        If TVM cannot compile a stage, or the stages differ from the unsplit model.
    TuningError
        If the database is missing, damaged, or another kind of file.
    """
    from pipeline.executor.build import check_parity, compile_plan
    from pipeline.executor.bundle import Bundle
    from pipeline.executor.general import runs_here
    from pipeline.executor.numerics import EXACT, Numerics
    from pipeline.executor.tuning.use import Tuned
    from pipeline.split import extract, planned

    parts = planned.parts(graph, plan)
    tuned = None if tuning is None else Tuned.load(tuning)
    numerics = Numerics(winograd, weights)
    modules = [extract.module(part) for part in parts]
    codes = compile_plan(plan, modules, progress, tuning=tuned, numerics=numerics)
    stages = [(stage, code) for stage, code in zip(plan.stages, codes, strict=True) if code is not None]
    parity = None
    if check and len(stages) == len(codes) and all(runs_here(code) for _, code in stages):
        progress("comparing with the unsplit model")
        # Without tuning and other numerics, which would be compared with themselves.
        unsplit = _unsplit(graph, plan) if len(stages) > 1 or tuned or numerics != EXACT else stages[0]
        allowed = numerics.tolerance if tolerance is None else tolerance
        parity = check_parity(plan, stages, unsplit, tolerance=allowed, seed=seed)
    return Bundle(plan, codes, parity, _general(plan, parts, codes, check, progress))


def _unsplit(graph: Graph, plan: Plan) -> tuple[StagePlan, StageCode]:
    from pipeline.executor.build import compile_stage
    from pipeline.plans import StagePlan
    from pipeline.split import extract

    (part,) = extract.parts(graph, [])
    whole = StagePlan("unsplit", plan.stages[0].device, part.inputs, part.outputs)
    return whole, compile_stage(extract.module(part), plan.board.device(whole.device))


def _general(
    plan: Plan,
    parts: Sequence[Part],
    codes: Sequence[StageCode | None],
    measured: bool,
    progress: Callable[[str], None],
) -> list[StageGeneral]:
    from pipeline.executor.general import NamedOperator, of_stage

    found = []
    for stage, part, code in zip(plan.stages, parts, codes, strict=True):
        if code is not None:
            if measured:
                progress(f"timing {stage.name}")
            made_by = {name: NamedOperator(each.name, each.kind) for each in part.operators for name in each.outputs}
            found.append(of_stage(stage, code, plan.board.device(stage.device), made_by, measured=measured))
    return found


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
