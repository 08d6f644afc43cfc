"""Building: a graph, or a model at several sizes, becomes a bundle; what `pipeline.build` does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline import padding, unsplit
from pipeline.errors import BuildError, ModelError
from pipeline.executor import parameters
from pipeline.executor.build import Parity, check_parity, compile_plan, runs_here
from pipeline.executor.bundle import Bundle
from pipeline.executor.code import StageCode
from pipeline.executor.general import NamedOperator, StageGeneral, of_stage
from pipeline.executor.numerics import EXACT, Numerics
from pipeline.executor.tuning.use import Tuned
from pipeline.plans import Plan
from pipeline.sizes import Build, Size, told
from pipeline.split import extract, planned
from pipeline.split.extract import Part
from pipeline.split.graph import Graph
from pipeline.split.open_model import OpenModel, at_other_size

OTHER_SIZES = ("refuse", "pad", "symbolic")
"""What may become of frames of sizes that a bundle was not built for."""


@dataclass(frozen=True)
class Options:
    """As for `pipeline.build`."""

    progress: Callable[[str], None]
    check: bool = True
    tolerance: float | None = None
    seed: int = 0
    tuned: Tuned | None = None
    numerics: Numerics = EXACT

    @property
    def allowed(self) -> float:
        """Largest error, as a share of the largest output."""
        return self.numerics.tolerance if self.tolerance is None else self.tolerance


def build(graph: Graph, plan: Plan, options: Options) -> Bundle:
    """Return the bundle for one size."""
    parts = planned.parts(graph, plan)
    expected = _expected(graph, plan, options)
    codes = _compiled(graph, plan, parts, options)
    parity = _parity(plan, codes, expected, options)
    return Bundle(plan, codes, parity, _general(plan, parts, codes, options), numerics=options.numerics)


def build_open(model: OpenModel, plan: Plan, sizes: Sequence[Size], other_sizes: str, options: Options) -> Bundle:
    """Return the bundle for the plan's size and others.

    Raises
    ------
    ModelError
        If a size or `other_sizes` is unknown.
    BuildError
        If frames shall be padded, but results depend on what they are padded with.
    """
    if other_sizes not in OTHER_SIZES:
        raise ModelError(f"other_sizes is {other_sizes!r}; it must be one of {', '.join(OTHER_SIZES)}")
    first = model.size_of(plan)
    others = [each for each in map(model.checked, sizes) if each != first]
    graph = model.at(first)
    bundle = build(graph, plan, options)
    more = [
        build_at(model, plan, dict(each), options) for each in dict.fromkeys(tuple(each.items()) for each in others)
    ]
    if other_sizes == "symbolic":
        more.append(_symbolic(model, plan, first, options))
    bundle = _sharing_parameters(bundle, more)
    bundle.shapes = model.complete(graph)
    if other_sizes == "pad":
        options.progress("padding")
        bundle.shapes = replace(bundle.shapes, padded=padding.axes(model, bundle, options.allowed, options.seed))
    return bundle


def build_at(model: OpenModel, plan: Plan, size: Size, options: Options) -> Build:
    """Return the stages of a plan for another size."""
    options.progress(f"reading for {told(size)}")
    graph = model.at(size)
    told_so = replace(options, progress=lambda text: options.progress(f"{text} for {told(size)}"))
    return compiled_at(graph, at_other_size(plan, graph), told_so)


def compiled_at(graph: Graph, plan: Plan, options: Options) -> Build:
    """Return the stages of a plan that was made for `graph`, or for the same model at another size."""
    expected = _expected(graph, plan, options)
    codes = _compiled(graph, plan, planned.parts(graph, plan), options)
    _parity(plan, codes, expected, options)
    return Build(plan, tuple(codes))


def _symbolic(model: OpenModel, plan: Plan, size: Size, options: Options) -> Build:
    graph = model.symbolic(size)
    own = at_other_size(plan, graph)
    told_so = replace(options, progress=lambda text: options.progress(f"{text} for any size"))
    expected = _expected(model.at(size), own, told_so)
    codes = _compiled(graph, own, planned.parts(graph, own), told_so, symbolic=True)
    _parity(own, codes, expected, told_so)
    return Build(own, tuple(codes), symbolic=True)


def _compiled(
    graph: Graph, plan: Plan, parts: Sequence[Part], options: Options, *, symbolic: bool = False
) -> list[StageCode | None]:
    tuned, numerics = options.tuned, options.numerics
    modules = _modules(graph, parts)
    return compile_plan(plan, modules, options.progress, tuning=tuned, numerics=numerics, symbolic=symbolic)


def _modules(graph: Graph, parts: Sequence[Part]) -> Iterator[Any]:
    """Yield each stage's module; memory that was only needed for the one before is free by then."""
    for part in parts:
        graph.release()
        yield extract.module(part)
    graph.release()


def _expected(graph: Graph, plan: Plan, options: Options) -> dict[str, np.ndarray] | None:
    """Return a random frame's outputs of the unsplit model, whose weights are gone by the time that stages are built.

    None if nothing shall be compared, or this machine cannot run the stages.
    """
    if not options.check or not _run_here(plan):
        return None
    options.progress("running the unsplit model")
    return unsplit.outputs(graph, plan, options.seed)


def _run_here(plan: Plan) -> bool:
    try:
        return all(runs_here(plan.board.device(stage.device)) for stage in plan.stages)
    except BuildError:  # a target that is none: building will name the stage
        return False


def _parity(
    plan: Plan,
    codes: Sequence[StageCode | None],
    expected: Mapping[str, np.ndarray] | None,
    options: Options,
) -> Parity | None:
    if expected is None:
        return None
    options.progress("comparing with the unsplit model")
    stages = [(stage, code) for stage, code in zip(plan.stages, codes, strict=True) if code is not None]
    return check_parity(plan, stages, expected, tolerance=options.allowed, seed=options.seed)


def _general(
    plan: Plan, parts: Sequence[Part], codes: Sequence[StageCode | None], options: Options
) -> list[StageGeneral]:
    found = []
    for stage, part, code in zip(plan.stages, parts, codes, strict=True):
        if code is not None:
            if options.check:
                options.progress(f"timing {stage.name}")
            made_by = {name: NamedOperator(each.name, each.kind) for each in part.operators for name in each.outputs}
            device = plan.board.device(stage.device)
            measured = options.check and runs_here(device)
            found.append(of_stage(stage, code, device, made_by, measured=measured))
    return found


def _sharing_parameters(bundle: Bundle, more: Sequence[Build]) -> Bundle:
    """Return the bundle with further builds; parameters that are equal are in memory once."""
    builds = [bundle.codes, *(build.codes for build in more)]
    fresh: list[list[Any]] = [[] for _ in builds]
    for codes in zip(*builds, strict=True):
        sets = parameters.shared([code.parameters if code else {} for code in codes])
        for own, code, values in zip(fresh, codes, sets, strict=True):
            own.append(code and code.with_parameters(values))
    first, *others = fresh
    shared = [replace(build, codes=tuple(codes)) for build, codes in zip(more, others, strict=True)]
    return Bundle(bundle.plan, first, bundle.parity, bundle.general, numerics=bundle.numerics, more=shared)
