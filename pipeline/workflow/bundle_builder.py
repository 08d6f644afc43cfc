"""Bundle builder: from a graph, or a model at several sizes, to a bundle."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.comparison.judgement import Bounds, Judgement
from pipeline.core.numerics import EXACT, Numerics, rounding_of
from pipeline.core.packed_value import is_packed
from pipeline.core.plan.plan import Plan
from pipeline.core.shapes import Build, Size, SizeRange, describe_size, sizes_in
from pipeline.errors import BuildError, ModelError
from pipeline.executor.build import compile_plan, runs_here
from pipeline.executor.bundle import Bundle
from pipeline.executor.parity import Parity, check_parity
from pipeline.executor.stage_code import StageCode, share_parameters
from pipeline.executor.tuning.lookup import TuningLookup
from pipeline.export.stage_export import StageExport
from pipeline.measure.kernel_coverage import NamedOperator, StageGeneral, of_stage
from pipeline.split import stage_parts
from pipeline.split.extract import GraphPart
from pipeline.split.graph import Graph
from pipeline.split.output_quantization import output_quantization
from pipeline.split.stage_parts import at_other_size
from pipeline.split.symbolic_model import OpenModel
from pipeline.workflow import padding, reference_check
from pipeline.workflow.import_check import EVERYTHING, CheckOptions, ImportCheck, check_import

OTHER_RUNTIME = 1e-4
"""Tolerance of stages computed by another runtime, as a share of the largest value: it rounds in its own way."""

OTHER_SIZES = ("refuse", "pad", "symbolic")
"""Treatments of frames of sizes that a bundle was not built for."""


@dataclass(frozen=True)
class Options:
    """As for `pipeline.build`."""

    progress: Callable[[str], None]
    checks: CheckOptions = EVERYTHING
    tuning_lookup: TuningLookup | None = None
    numerics: Numerics = EXACT

    def tolerance_of(self, graph: Graph, plan: Plan) -> float:
        """Return the stages' total tolerance, relative to the largest output."""
        if self.checks.tolerance.share is not None:
            return self.checks.tolerance.share
        rounding = rounding_of(spec.dtype for spec in graph.tensors.values())
        if has_other_runtime(plan):
            rounding = max(rounding, OTHER_RUNTIME)
        return max(rounding, *(self.numerics.of_stage(stage.options).tolerance for stage in plan.stages))


def has_other_runtime(plan: Plan) -> bool:
    """Test if a runtime other than TVM computes a stage."""
    return any(plan.board.device(stage.device).capabilities.model_format for stage in plan.units)


def build(graph: Graph, plan: Plan, options: Options) -> Bundle:
    """Return the bundle for one size."""
    # There are no random values of what has no fixed shape, such as text.
    if any(map(is_packed, plan.inputs)):
        options = replace(options, checks=replace(options.checks, check=False))
    parts = stage_parts.parts(graph, plan)
    # First, so that the weights of the unsplit model are gone before those of the stages are there.
    try:
        checked = _check_import(graph, plan, options)
        codes = _compile(graph, plan, parts, options)
    except BuildError as error:
        if not (cause := _describe_empty_tensor(graph)):
            raise
        raise BuildError(f"{error} ({cause})") from error
    parity = _parity(graph, plan, codes, checked, options)
    general = _general(plan, parts, codes, options)
    # Only the graph knows it, and whoever loads the bundle has no graph.
    plan = replace(plan, quantization=output_quantization(graph))
    bundle = Bundle(plan, codes, parity, general, numerics=options.numerics)
    bundle.verification, bundle.unverified = checked.verification, checked.unverified
    return bundle


def _describe_empty_tensor(graph: Graph) -> str:
    """Describe the first empty tensor behind non-empty inputs, if any."""
    empty = {name for name, spec in graph.tensors.items() if 0 in spec.shape}
    name = next((name for operator in graph.operators for name in operator.outputs if name in empty), "")
    if not name or any(spec.name in empty for spec in graph.inputs):
        return ""
    shapes = ", ".join(f"{spec.name}={','.join(map(str, spec.shape))}" for spec in graph.inputs)
    return f"with {shapes} {name!r} has no elements; give larger extents, as --shape or shapes= of read"


def build_open(model: OpenModel, plan: Plan, sizes: Sequence[SizeRange], other_sizes: str, options: Options) -> Bundle:
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
    # The size of the plan is built already, whoever asks for it again.
    further = [size for size_range in sizes for size in map(model.check_size, sizes_in(size_range)) if size != first]
    graph = model.at(first)
    bundle = build(graph, plan, options)
    builds = [
        # As tuples, which can be keys: each size is built once, in the order in which they were asked for.
        build_at(model, plan, dict(size), options)
        for size in dict.fromkeys(tuple(size.items()) for size in further)
    ]
    if other_sizes == "symbolic":
        builds.append(_symbolic(model, plan, first, options))
    # Before padding is tried out, which takes the largest of all builds.
    bundle = _sharing_parameters(bundle, builds)
    bundle.shapes = model.complete(graph)
    if other_sizes == "pad":
        options.progress("padding")
        tolerance_of = options.tolerance_of(graph, plan)
        bundle.shapes = replace(bundle.shapes, padded=padding.axes(model, bundle, tolerance_of, options.checks.seed))
    return bundle


def build_at(model: OpenModel, plan: Plan, size: Size, options: Options) -> Build:
    """Return the stages of a plan for another size."""
    options.progress(f"reading for {describe_size(size)}")
    graph = model.at(size)
    named_options = replace(options, progress=lambda text: options.progress(f"{text} for {describe_size(size)}"))
    return compiled_at(graph, at_other_size(plan, graph), named_options)


def compiled_at(graph: Graph, plan: Plan, options: Options) -> Build:
    """Compile a plan's stages for `graph`, or its model's other sizes."""
    # A frame of the first size, which a user may have given, does not fit this one.
    checks = replace(options.checks, frames=())
    checked = _check_import(graph, plan, replace(options, checks=checks))
    codes = _compile(graph, plan, stage_parts.parts(graph, plan), options)
    _parity(graph, plan, codes, checked, options)
    return Build(plan, tuple(codes))


def _symbolic(model: OpenModel, plan: Plan, size: Size, options: Options) -> Build:
    graph = model.symbolic(size)
    symbolic_plan = at_other_size(plan, graph)
    named_options = replace(options, progress=lambda text: options.progress(f"{text} for any size"))
    # Against the model at a fixed size: a mistake with symbolic extents would be in both otherwise.
    # At that size the import has been compared already.
    checks = replace(options.checks, verify=False)
    checked = _check_import(model.at(size), symbolic_plan, replace(named_options, checks=checks))
    codes = _compile(graph, symbolic_plan, stage_parts.parts(graph, symbolic_plan), named_options, symbolic=True)
    _parity(graph, symbolic_plan, codes, checked, named_options)
    return Build(symbolic_plan, tuple(codes), symbolic=True)


def _compile(
    graph: Graph, plan: Plan, parts: Sequence[GraphPart], options: Options, *, symbolic: bool = False
) -> list[StageCode | None]:
    tuning_lookup, numerics = options.tuning_lookup, options.numerics
    sources = _sources(graph, parts)
    return compile_plan(plan, sources, options.progress, tuning=tuning_lookup, numerics=numerics, symbolic=symbolic)


def _sources(graph: Graph, parts: Sequence[GraphPart]) -> Iterator[StageExport]:
    """Yield the stages, releasing the previous one's memory."""
    for part in parts:
        graph.release()
        yield StageExport(graph, part)
    graph.release()


def _check_import(graph: Graph, plan: Plan, options: Options) -> ImportCheck:
    """Run the unsplit model, releasing its weights before stages are built."""
    if options.checks.check or options.checks.verify:
        options.progress("running the unsplit model")
    return check_import(graph, plan, options.checks)


def _parity(
    graph: Graph,
    plan: Plan,
    codes: Sequence[StageCode | None],
    checked: ImportCheck,
    options: Options,
) -> Parity | None:
    if (expected := checked.outputs) is None:
        return None
    options.progress("comparing with the unsplit model")
    stages = [(stage, code) for stage, code in zip(plan.units, codes, strict=True) if code is not None]
    tolerance = options.tolerance_of(graph, plan)
    bounds = Bounds.of(options.checks.tolerance, tolerance)

    def judge_stages(tensors: Mapping[str, np.ndarray]) -> Mapping[str, Judgement]:
        return reference_check.check_stages(graph, tensors, expected, bounds).judgements

    compare = functools.partial(
        check_parity,
        plan,
        expected=expected,
        tolerance=tolerance,
        seed=options.checks.seed,
        frame=checked.frame,
        judge=judge_stages if has_other_runtime(plan) else None,
    )
    # Alone, without its variants: a device would take one of them by its cores.  The main code's result is the answer.
    for processor in dict.fromkeys(variant.processor for _, code in stages for variant in code.variants):
        variants = [(stage, code.for_processor(processor).with_parameters({})) for stage, code in stages]
        compare(variants)
    stages = [(stage, code.with_parameters({}) if code.variants else code) for stage, code in stages]
    return compare(stages)


def _general(
    plan: Plan, parts: Sequence[GraphPart], codes: Sequence[StageCode | None], options: Options
) -> list[StageGeneral]:
    generals = []
    for stage, part, code in zip(plan.units, parts, codes, strict=True):
        # Devices that compute nothing, or call a Python function, have stages without code.
        if code is not None:
            if options.checks.check:
                options.progress(f"timing {stage.name}")
            producers = {
                name: NamedOperator(operator.name, operator.kind)
                for operator in part.operators
                for name in operator.outputs
            }
            device = plan.board.device(stage.device)
            is_timed = options.checks.check and runs_here(device)
            generals.append(of_stage(stage, code, device, producers, run=is_timed))
    return generals


def _sharing_parameters(bundle: Bundle, builds_of_sizes: Sequence[Build]) -> Bundle:
    """Return the bundle with further builds, sharing equal parameters."""
    builds = [bundle.codes, *(build.codes for build in builds_of_sizes)]
    code_lists: list[list[Any]] = [[] for _ in builds]
    for codes in zip(*builds, strict=True):
        # Stage by stage over all sizes. Most weights are equal; what was folded from an extent differs.
        for code_list, code in zip(code_lists, share_parameters(codes), strict=True):
            code_list.append(code)
    first, *other_code_lists = code_lists
    sharing = [
        replace(build, codes=tuple(codes)) for build, codes in zip(builds_of_sizes, other_code_lists, strict=True)
    ]
    shared = Bundle(bundle.plan, first, bundle.parity, bundle.general, numerics=bundle.numerics, more=sharing)
    shared.verification, shared.unverified = bundle.verification, bundle.unverified
    return shared
