"""The public functions: read, plan, build, load.  This is where the rooms meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from pipeline.board import Board
from pipeline.errors import ModelError

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.new_sizes import Maker
    from pipeline.plans import Plan
    from pipeline.scheduler.pipeline import Pipeline
    from pipeline.split.graph import Graph
    from pipeline.split.open_model import OpenModel


def _silent(_: str) -> None:
    pass


@overload
def read(
    model: Any,
    shapes: Mapping[str, Sequence[int]] | None = ...,
    params: Mapping[str, Any] | str | Path | None = ...,
    *,
    verify: bool = ...,
) -> Graph: ...


@overload
def read(
    model: Any,
    shapes: Mapping[str, Sequence[int | str]],
    params: Mapping[str, Any] | str | Path | None = ...,
    *,
    verify: bool = ...,
) -> Graph | OpenModel: ...


def read(
    model: Any,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    params: Mapping[str, Any] | str | Path | None = None,
    *,
    verify: bool = False,
) -> Graph | OpenModel:
    """Read a model, fold its constants and batch norms, and return its graph.

    Parameters
    ----------
    model : str, Path, torch.export.ExportedProgram, tvm.IRModule, or tvm.relax.Function
        An ONNX file, a TFLite model, a file of ``torch.export.save``, a Relay program (text or JSON), or a Relax
        module (TVMScript or JSON), whose content says which; or an exported PyTorch program or Relax module itself.
    shapes : mapping of str to sequence of (int or str), optional
        Extents for inputs whose shape is symbolic in the model; names, such as ``["N", 3, 224, 224]``, for extents
        that shall vary.
    params : mapping, str or Path, optional
        Parameters of a Relay program or Relax module by name: arrays, or a file of ``relay.save_param_dict`` or
        ``numpy.savez``.  What has no value here is an input of the model.
    verify : bool
        Compare with the library that the format belongs to, on random input; see `pipeline.verify`.

    Returns
    -------
    Graph or OpenModel
        With names in `shapes`, a model that has a graph at each size: ``model.at(N=16)``.

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
    from pipeline.split.open_model import is_open, open_model

    if shapes and is_open(shapes):
        if verify:
            raise ModelError("a model is verified at a size: read it with numbers for all extents")
        return open_model(model, shapes, params)
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
    queue_depth: int | str = "auto",
    variance: float = 0.1,
    measure: bool = False,
    objective: str | None = None,
    fps: float | None = None,
    replicas: bool = True,
    progress: Callable[[str], None] = _silent,
) -> Plan:
    """Divide a graph into stages and give each one a device and cores.

    Parameters
    ----------
    graph : Graph
    board : Board or str
        What it shall run on; ``"host"`` is this machine.
    stages : int or "auto"
        How many stages; the cuts are chosen so that the slowest stage is as fast as possible.  ``"auto"`` chooses
        cuts, devices, cores, threads and replicas: the fewest stages that come close to the best, one stage where
        pipelining does not help.
    cuts : sequence of str or int, optional
        Cuts by tensor name, operator name, or position (the number of operators in front), instead of `stages`.
    devices : sequence of str, optional
        The board's device for each stage; by default those that suit best, and for given cuts the first one.
    queue_depth : int or "auto"
        How many frames may wait in front of each stage.  ``"auto"`` chooses for each the fewest with which its queue
        costs at most 1.5 % of the frame rate, as stages' times vary, and as far as there is memory.
    variance : float
        By how much they vary: standard deviation of a stage's time, as a share of it.
    measure : bool
        Build and time each group of operators on the board's devices that are here, instead of estimating.
    objective : str, optional
        What ``"auto"`` aims at: ``"throughput"`` (default), ``"latency"`` (default with `fps`) or ``"energy"``.
    fps : float, optional
        How many frames per second arrive and must be kept up with.
    replicas : bool
        Whether ``"auto"`` may run a stage on several frames at once, each on cores of its own.
    progress : callable, optional
        Told what is being done.

    Raises
    ------
    PlanError
        If a cut is unknown or not legal, there are more stages than legal cuts allow, or the board cannot run the
        model, or not as fast as `fps`.
    BoardError
        If the board or a device is unknown.
    """
    from pipeline.planning import planner

    made = planner(graph, board, measure=measure, queue_depth=queue_depth, variance=variance, progress=progress)
    return made.plan(stages=stages, cuts=cuts, devices=devices, objective=objective, fps=fps, replicas=replicas)


def build(  # noqa: PLR0913 - all but the first two by keyword
    graph: Graph | OpenModel,
    plan: Plan,
    *,
    sizes: Sequence[Mapping[str, int]] = (),
    other_sizes: str = "refuse",
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
    graph : Graph or OpenModel
        The graph that the plan was made for, or the model that has this graph at some size.
    plan : Plan
    sizes : sequence of mapping of str to int
        Of an open model, the sizes to build for beside the plan's own, such as ``[{"N": 16}, {"N": 32}]``.  Parameters
        that are the same for all are kept once.
    other_sizes : str
        What becomes of frames of other sizes.  ``"refuse"``: an error lists the sizes there are.  ``"pad"``: they are
        filled up with zeros to the next larger size, and the result is cropped; tried out on a random frame.
        ``"symbolic"``: they run in a build for any size, which is slower.
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
    from pipeline import building
    from pipeline.executor.numerics import Numerics
    from pipeline.executor.tuning.use import Tuned
    from pipeline.split.open_model import OpenModel

    tuned = None if tuning is None else Tuned.load(tuning)
    options = building.Options(progress, check, tolerance, seed, tuned, Numerics(winograd, weights))
    if isinstance(graph, OpenModel):
        return building.build_open(graph, plan, sizes, other_sizes, options)
    if sizes or other_sizes != "refuse":
        raise ModelError(f"{graph.name!r} was read with fixed shapes; give names for what varies to pipeline.read")
    return building.build(graph, plan, options)


def load(
    bundle: Bundle | str | Path, *, on_new_shape: str = "refuse", model: Any = None, params: Any = None, **options: Any
) -> Pipeline:
    """Return a running pipeline.

    Parameters
    ----------
    bundle : Bundle, str or Path
        A bundle, or the folder where one was saved.
    on_new_shape : str
        What becomes of frames of a size that the bundle has no build for.  ``"refuse"``: an error lists the sizes.
        ``"compile"``: a build is made from `model` in the background and kept on disk, while other frames go on.
    model : OpenModel, str or Path, optional
        What the bundle was built from, for ``"compile"``.
    params : mapping, str or Path, optional
        Of that model, as for `pipeline.read`.
    **options
        As for `pipeline.Pipeline`, such as ``trace``.

    Raises
    ------
    BundleError
        If the bundle is missing, damaged, or built for another kind of machine.
    PlanError
        If `model` is not what it was built from.
    ValueError
        If `on_new_shape` is unknown, or does not go with the other arguments.
    """
    from pipeline.executor.bundle import Bundle
    from pipeline.scheduler.pipeline import Pipeline

    found = bundle if isinstance(bundle, Bundle) else Bundle.load(bundle)
    if on_new_shape not in ("refuse", "compile"):
        raise ValueError(f"on_new_shape is {on_new_shape!r}; it must be 'refuse' or 'compile'")
    build = _maker(found, model, params) if on_new_shape == "compile" else None
    return Pipeline(found.plan, found.codes, shapes=found.shapes, more=found.more, build=build, **options)


def _maker(bundle: Bundle, model: Any, params: Any) -> Maker:
    from pipeline.new_sizes import Maker
    from pipeline.split.open_model import OpenModel, open_model

    if bundle.shapes is None:
        raise ValueError("on_new_shape='compile' needs a bundle that was built from a model with shapes that vary")
    if model is None:
        raise ValueError("on_new_shape='compile' needs the model that the bundle was built from: model=...")
    return Maker(model if isinstance(model, OpenModel) else open_model(model, bundle.shapes.inputs, params), bundle)
