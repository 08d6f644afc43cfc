"""Verb build: compiles a plan's stages for their devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from pipeline.core import arguments
from pipeline.core.plan.stage_options import DEFAULT_PRECISION, accept_old_options
from pipeline.errors import ModelError, PlanError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pipeline.core.board.board import Board
    from pipeline.core.model_card import ModelCard
    from pipeline.core.plan.plan import Plan
    from pipeline.core.shapes import SizeRange
    from pipeline.executor.bundle import Bundle
    from pipeline.split.graph import Graph
    from pipeline.split.symbolic_model import OpenModel
    from pipeline.workflow.bundle_builder import BuildOptions


class BuildKeywords(TypedDict, total=False):
    """Keyword arguments of `build` about what is compiled, and how it is compared."""

    check: bool
    verify: bool | Iterable[Any] | None
    tolerance: float | str | None
    seed: int
    tuning: str | Path | None
    precision: str
    weights: str
    progress: Callable[[str], None]


@accept_old_options
@arguments.names_keywords("build", BuildKeywords)
def build(  # noqa: PLR0913 - all but the first two by keyword
    graph: Graph | OpenModel | Sequence[Any] | Mapping[str, Any],
    plan: Plan | None = None,
    *,
    connect: Mapping[str, str] | None = None,
    board: Board | str = "host",
    devices: Sequence[str] | None = None,
    sizes: Sequence[SizeRange] = (),
    other_sizes: str = "refuse",
    card: ModelCard | None = None,
    **options: Unpack[BuildKeywords],
) -> Bundle:
    """Compile each stage of a plan for its device.

    Parameters
    ----------
    graph : Graph, OpenModel, sequence, or mapping of str to object
        The graph that the plan was made for, the model that has this graph at some size, or several models that
        `pipeline.chain` connects.
    plan : Plan, optional
        Plan to build; by default that of `pipeline.plan` for `board` and `devices`, with a stage for each of several
        models.
    connect : mapping of str to str, optional
        Connections of several models, as for `pipeline.chain`.
    board : Board or str
        Board to run on, without a plan.
    devices : sequence of str, optional
        Board's device for each stage, without a plan.
    sizes : sequence of mapping of str to (int, range or str)
        Sizes of an open model to build for beside the plan's own, such as ``[{"N": 16}, {"N": 32}]``, or ranges of
        them, such as ``[{"N": "1..8"}]`` or ``[{"N": range(1, 9)}]``.  Parameters that are the same for all are kept
        once.
    other_sizes : str
        Treatment of frames of other sizes.  ``"refuse"``: an error lists the sizes there are.  ``"pad"``: they are
        filled up with zeros to the next larger size, and the result is cropped; tried out on a random frame.
        ``"symbolic"``: they run in a build for any size, which is slower.
    card : ModelCard, optional
        Inputs wanted and outputs given by the model, for the bundle; by default the graph's.

    Other Parameters
    ----------------
    check : bool
        Compare the stages with the unsplit model (default) on a seeded random frame that it takes, or the first one of
        `verify`; what was found is ``bundle.parity``, None for stages that this machine cannot run.  Without it,
        nothing is run, and ``bundle.general`` has no shares.
    verify : bool, or iterable of frames, optional
        Compare the unsplit model with the library that its format belongs to, as `pipeline.verify` does; what was
        found is ``bundle.verification``.  By default it is done where that library is installed and can run the model,
        and ``bundle.unverified`` says why it is not done; with True what stands in the way is an error.  Frames, as
        for `pipeline.verify`, are compared instead of a random one.
    tolerance : float or str, optional
        Largest allowed error, as a share of the largest output; by default 1e-5, 5e-3 with weights as float16, 5e-2
        as bfloat16, 2e-2 and 5e-2 with products in these; 2e-2 and 1e-1 if the model has tensors
        of these dtypes, whose stages are compared with the model in float32.  The library, and stages of runtimes
        other than TVM, may always differ by as much as `pipeline.verify` allows, and by more if this says so: as a
        share, as steps of quantised integers, such as ``"5steps"``, or both, such as ``"0.001,5steps"``.
    seed : int
        Seed of the random frame; 0 by default.
    tuning : str or Path, optional
        A database of `pipeline.tune`, whose kernels are used where they were measured to be faster.
    precision : str
        Number format of products: ``"float32"`` (default), ``"float32-exact"``, ``"bfloat16"``, ``"float16"`` or
        ``"auto"``; see `pipeline.core.numerics.Numerics`.
    weights : str
        Stored form of the weights of convolutions and dense layers with float32 products: ``"float32"`` (default),
        ``"float16"`` or ``"bfloat16"``.  Half as many bytes are read.
    progress : callable, optional
        Function to call with the present activity.

    Returns
    -------
    Bundle
        Bundle whose ``general`` has, for each stage, the operators that have no kernel of their own, and their share of
        the stage's time; see `pipeline.measure.kernel_coverage.StageGeneral`.

    Raises
    ------
    PlanError
        If the plan belongs to another graph, or its stages do not.
    BuildError
        If TVM cannot compile a stage, the stages differ from the unsplit model, or that from the model's own library.
    TuningError
        If the database is missing, damaged, or another kind of file.
    """
    from pipeline.split.earlier_plans import update_plan
    from pipeline.split.graph import Graph
    from pipeline.workflow import bundle_builder
    from pipeline.workflow.chain import chain

    # 1. Several models become one graph, which remembers where each of them ends.
    if isinstance(graph, Sequence | Mapping):
        graph = chain(graph, connect)
    elif connect:
        raise ModelError("connect is for several models; give a list of them")
    # A graph has one size, so that whatever is said about others is a mistake.
    if isinstance(graph, Graph) and (sizes or other_sizes != "refuse"):
        raise ModelError(f"{graph.name!r} was read with fixed shapes; give names for what varies to pipeline.read")
    # 2. Its plan, which has its board in it: arguments that it would silently overrule are refused.
    if plan is not None and (devices is not None or board != "host"):
        raise PlanError("the plan says what to run on; leave out board and devices")
    if plan is None:
        plan = _make_plan(graph, board, devices, options)
    # 3. Its stages.
    build_options = _pack(plan, options)
    if isinstance(graph, Graph):
        bundle = bundle_builder.build(graph, update_plan(plan, graph), build_options)
    else:
        bundle = bundle_builder.build_open(graph, plan, sizes, other_sizes, build_options)
    if card is not None:
        bundle.card = card
    return bundle


def _make_plan(
    graph: Graph | OpenModel, board: Board | str, devices: Sequence[str] | None, options: BuildKeywords
) -> Plan:
    from pipeline.split.graph import Graph
    from pipeline.workflow.plan import plan

    if not isinstance(graph, Graph):
        raise PlanError(f"{graph.name!r} has shapes that vary; plan it at a size: pipeline.plan(model.at(...))")
    # The division that the user made is kept; of one model the planner chooses.
    stages = "models" if graph.model_ends else "auto"
    precision, weights = options.get("precision", DEFAULT_PRECISION), options.get("weights", "float32")
    return plan(graph, board, stages=stages, devices=devices, precision=precision, weights=weights)


def _pack(plan: Plan, keywords: BuildKeywords) -> BuildOptions:
    from pipeline.comparison.judgement import Tolerance
    from pipeline.core.numerics import Numerics
    from pipeline.executor.tuning.lookup import TuningLookup
    from pipeline.workflow.bundle_builder import BuildOptions
    from pipeline.workflow.import_check import CheckOptions
    from pipeline.workflow.verify import named_frames

    verify, tolerance = keywords.get("verify"), Tolerance.of(keywords.get("tolerance"))
    if verify is None or isinstance(verify, bool):
        compared, frames = verify, []
    else:
        # An open model has the inputs of its plan.
        compared, frames = True, named_frames(plan.inputs, verify, plan.states)
    checks = CheckOptions(keywords.get("check", True), compared, frames, tolerance, keywords.get("seed", 0))
    tuning = keywords.get("tuning")
    database = None if tuning is None else TuningLookup.load(tuning)
    numerics = Numerics(keywords.get("precision", DEFAULT_PRECISION), keywords.get("weights", "float32"))
    return BuildOptions(keywords.get("progress", lambda _: None), checks, database, numerics)
