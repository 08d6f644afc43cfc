"""Verb build: compiles a plan's stages for their devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import ModelError, PlanError

if TYPE_CHECKING:
    from pipeline.core.board.board import Board
    from pipeline.core.plan.plan import Plan
    from pipeline.core.shapes import SizeRange
    from pipeline.executor.bundle import Bundle
    from pipeline.split.graph import Graph
    from pipeline.split.symbolic_model import OpenModel
    from pipeline.workflow.bundle_builder import Options
    from pipeline.workflow.import_check import CheckOptions


def build(  # noqa: PLR0913 - all but the first two by keyword
    graph: Graph | OpenModel | Sequence[Any] | Mapping[str, Any],
    plan: Plan | None = None,
    *,
    connect: Mapping[str, str] | None = None,
    board: Board | str = "host",
    devices: Sequence[str] | None = None,
    sizes: Sequence[SizeRange] = (),
    other_sizes: str = "refuse",
    check: bool = True,
    verify: bool | Iterable[Any] | None = None,
    tolerance: float | str | None = None,
    seed: int = 0,
    tuning: str | Path | None = None,
    winograd: bool = False,
    weights: str = "float32",
    arithmetic: str = "float32",
    progress: Callable[[str], None] = lambda _: None,
) -> Bundle:
    """Compile each stage of a plan for its device.

    Parameters
    ----------
    graph : Graph, OpenModel, sequence, or mapping of str to object
        The graph that the plan was made for, the model that has this graph at some size, or several models that
        `pipeline.chain` connects.
    plan : Plan, optional
        By default that of `pipeline.plan` for `board` and `devices`, with a stage for each of several models.
    connect : mapping of str to str, optional
        Of several models, as for `pipeline.chain`.
    board : Board or str
        Without a plan, what it shall run on.
    devices : sequence of str, optional
        Without a plan, the board's device for each stage.
    sizes : sequence of mapping of str to (int, range or str)
        Of an open model, the sizes to build for beside the plan's own, such as ``[{"N": 16}, {"N": 32}]``, or ranges of
        them, such as ``[{"N": "1..8"}]`` or ``[{"N": range(1, 9)}]``.  Parameters that are the same for all are kept
        once.
    other_sizes : str
        What becomes of frames of other sizes.  ``"refuse"``: an error lists the sizes there are.  ``"pad"``: they are
        filled up with zeros to the next larger size, and the result is cropped; tried out on a random frame.
        ``"symbolic"``: they run in a build for any size, which is slower.
    check : bool
        Compare the stages with the unsplit model on a seeded random frame that it takes, or the first one of `verify`;
        what was found is ``bundle.parity``, None for stages that this machine cannot run.  Without it, nothing is run,
        and ``bundle.general`` has no shares.
    verify : bool, or iterable of frames, optional
        Compare the unsplit model with the library that its format belongs to, as `pipeline.verify` does; what was
        found is ``bundle.verification``.  By default it is done where that library is installed and can run the model,
        and ``bundle.unverified`` says why it is not done; with True what stands in the way is an error.  Frames, as
        for `pipeline.verify`, are compared instead of a random one.
    tolerance : float or str, optional
        Largest allowed error, as a share of the largest output; by default 1e-5, 1e-4 with `winograd`, 5e-3 with
        weights as float16, 5e-2 as bfloat16, 2e-2 with arithmetic in float16; 2e-2 and 1e-1 if the model has tensors
        of these dtypes, whose stages are compared with the model in float32.  The library, and stages of runtimes
        other than TVM, may always differ by as much as `pipeline.verify` allows, and by more if this says so: as a
        share, as steps of quantised integers, such as ``"5steps"``, or both, such as ``"0.001,5steps"``.
    seed : int
        Of the random frame.
    tuning : str or Path, optional
        A database of `pipeline.tune`, whose kernels are used where they were measured to be faster.
    winograd : bool
        Compute 3x3 convolutions by Winograd's transforms where that takes fewer cycles; see
        `pipeline.core.numerics.Numerics` for the error.
    weights : str
        What weights of convolutions and dense layers are stored as: ``"float32"``, ``"float16"`` or ``"bfloat16"``.
        Half as many bytes are read, and sums stay float32.
    arithmetic : str
        What numbers are multiplied as in these operators, in products of data by data, and in depthwise convolutions:
        ``"float32"``, or ``"float16"`` on 64-bit Arm cores that have it; see `pipeline.core.numerics.Numerics`.
    progress : callable, optional
        Told what is being done.

    Returns
    -------
    Bundle
        Its ``general`` has, for each stage, the operators that have no kernel of their own, and their share of the
        stage's time; see `pipeline.measure.kernel_coverage.StageGeneral`.

    Raises
    ------
    PlanError
        If the plan belongs to another graph, or its stages do not.
    BuildError
        If TVM cannot compile a stage, the stages differ from the unsplit model, or that from the model's own library.
    TuningError
        If the database is missing, damaged, or another kind of file.
    """
    graph = _as_one_graph(graph, connect)
    plan = _resolve_plan(plan, graph, board, devices)
    checks = _checks(plan, check=check, verify=verify, tolerance=tolerance, seed=seed)
    options = _options(progress, checks, tuning, winograd=winograd, weights=weights, arithmetic=arithmetic)
    return _compile(graph, plan, sizes, other_sizes, options)


def _as_one_graph(
    graph: Graph | OpenModel | Sequence[Any] | Mapping[str, Any], connect: Mapping[str, str] | None
) -> Graph | OpenModel:
    """Join several models' graphs with their borders, or return the only one."""
    from pipeline.workflow.chain import chain

    if isinstance(graph, Sequence | Mapping):
        return chain(graph, connect)
    if connect:
        raise ModelError("connect is for several models; give a list of them")
    return graph


def _resolve_plan(
    plan: Plan | None, graph: Graph | OpenModel, board: Board | str, devices: Sequence[str] | None
) -> Plan:
    if plan is None:
        return _own_plan(graph, board, devices)
    # A plan has its board in it: arguments that it would silently overrule are refused.
    if devices is not None or board != "host":
        raise PlanError("the plan says what to run on; leave out board and devices")
    return plan


def _options(
    progress: Callable[[str], None],
    checks: CheckOptions,
    tuning: str | Path | None,
    **numerics: Any,
) -> Options:
    from pipeline.core.numerics import Numerics
    from pipeline.executor.tuning.lookup import TuningLookup
    from pipeline.workflow.bundle_builder import Options

    database = None if tuning is None else TuningLookup.load(tuning)
    return Options(progress, checks, database, Numerics(**numerics))


def _compile(
    graph: Graph | OpenModel, plan: Plan, sizes: Sequence[SizeRange], other_sizes: str, options: Options
) -> Bundle:
    from pipeline.split.symbolic_model import OpenModel
    from pipeline.workflow import bundle_builder

    if isinstance(graph, OpenModel):
        return bundle_builder.build_open(graph, plan, sizes, other_sizes, options)
    # A graph has one size, so that whatever is said about others is a mistake.
    if sizes or other_sizes != "refuse":
        raise ModelError(f"{graph.name!r} was read with fixed shapes; give names for what varies to pipeline.read")
    return bundle_builder.build(graph, plan, options)


def _checks(
    plan: Plan,
    *,
    check: bool,
    verify: bool | Iterable[Any] | None,
    tolerance: float | str | None,
    seed: int,
) -> CheckOptions:
    from pipeline.comparison.tolerance import Tolerance
    from pipeline.workflow.import_check import CheckOptions
    from pipeline.workflow.verify import named_frames

    allowed = Tolerance.of(tolerance)
    if verify is None or isinstance(verify, bool):
        return CheckOptions(check, verify, (), allowed, seed)
    # An open model has the inputs of its plan.
    return CheckOptions(check, True, named_frames(plan.inputs, verify), allowed, seed)


def _own_plan(graph: Graph | OpenModel, board: Board | str, devices: Sequence[str] | None) -> Plan:
    from pipeline.split.graph import Graph
    from pipeline.workflow.plan import plan

    if not isinstance(graph, Graph):
        raise PlanError(f"{graph.name!r} has shapes that vary; plan it at a size: pipeline.plan(model.at(...))")
    # The division that the user made is kept; of one model the planner chooses.
    return plan(graph, board, stages="models" if graph.model_ends else "auto", devices=devices)
