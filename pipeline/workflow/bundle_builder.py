"""Bundle builder: from a graph, or a model at several sizes, to a bundle."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from pipeline.comparison.judgement import Bounds, Judgement
from pipeline.core.numerics import EXACT, Numerics, rounding_of
from pipeline.core.packed_value import is_packed
from pipeline.core.plan.plan import Plan
from pipeline.core.shapes import Build, Size, SizeRange, describe_size, sizes_in
from pipeline.errors import BuildError, ModelError
from pipeline.executor.build import compile_plan, runs_here
from pipeline.executor.bundle import Bundle
from pipeline.executor.executable import CompileOptions
from pipeline.executor.parity import Parity, check_parity
from pipeline.executor.stage_code import StageCode, share_parameters
from pipeline.executor.tuning.lookup import TuningLookup
from pipeline.export.stage_export import StageExport
from pipeline.measure.kernel_coverage import NamedOperator, StageGeneral, of_stage
from pipeline.split import stage_parts
from pipeline.split.earlier_plans import update_plan
from pipeline.split.extract import GraphPart
from pipeline.split.graph import Graph
from pipeline.split.output_quantization import input_quantization, output_quantization
from pipeline.split.stage_parts import at_other_size
from pipeline.split.symbolic_model import OpenModel
from pipeline.workflow import float32_layers, padding
from pipeline.workflow.import_check import EVERYTHING, CheckOptions, ImportCheck, check_import
from pipeline.workflow.reference_check import ReferenceCheck

OTHER_RUNTIME = 1e-4
"""Tolerance of stages computed by another runtime, as a share of the largest value: it rounds in its own way."""

OTHER_SIZES = ("refuse", "pad", "symbolic")
"""Treatments of frames of sizes that a bundle was not built for."""


@dataclass(frozen=True)
class BuildOptions:
    """Options of `pipeline.build`, packed."""

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

    def of_build(self, text: str, **checks: Any) -> BuildOptions:
        """Return options of a further build, with `text` behind its steps."""
        progress, checks_of_build = self.progress, replace(self.checks, **checks)
        return replace(self, progress=lambda step: progress(f"{step} {text}"), checks=checks_of_build)


def has_other_runtime(plan: Plan) -> bool:
    """Test if a runtime other than TVM computes a stage."""
    return any(plan.board.device(stage.device).capabilities.model_format for stage in plan.units)


class BuiltStages(NamedTuple):
    """Stages of a plan, built for one size and compared."""

    parts: Sequence[GraphPart]
    codes: tuple[StageCode | None, ...]
    checked: ImportCheck
    parity: Parity | None
    plan: Plan


def build(graph: Graph, plan: Plan, options: BuildOptions) -> Bundle:
    """Return the bundle for one size."""
    # There are no random values of what has no fixed shape, such as text.
    if any(map(is_packed, plan.inputs)):
        options = replace(options, checks=replace(options.checks, check=False))
    built = build_stages(graph, float32_layers.with_ends(graph, plan, options.numerics), options)
    plan = built.plan
    general = _general(plan, built, options)
    # Only the graph knows it, and whoever loads the bundle has no graph.
    plan = replace(plan, quantization=(*input_quantization(graph), *output_quantization(graph)))
    bundle = Bundle(plan, built.codes, built.parity, general, numerics=options.numerics, card=graph.card)
    bundle.verification, bundle.unverified = built.checked.verification, built.checked.unverified
    return bundle


def build_open(
    model: OpenModel, plan: Plan, sizes: Sequence[SizeRange], other_sizes: str, options: BuildOptions
) -> Bundle:
    """Return the bundle for the plan's size and others.

    Raises `ModelError` if a size or `other_sizes` is unknown; `BuildError` if frames shall be padded, but results
    depend on what they are padded with.
    """
    if other_sizes not in OTHER_SIZES:
        raise ModelError(f"other_sizes is {other_sizes!r}; it must be one of {', '.join(OTHER_SIZES)}")
    # 1. The plan's own size, and once each of the others, in the order in which they were asked for.
    first = model.size_of(plan)
    asked = [size for size_range in sizes for size in map(model.check_size, sizes_in(size_range)) if size != first]
    further = [dict(items) for items in dict.fromkeys(tuple(size.items()) for size in asked)]
    graph = model.at(first)
    plan = update_plan(plan, graph)
    bundle = build(graph, plan, options)
    # With the layers in float32 that were chosen.
    plan = replace(plan, stages=bundle.plan.stages)
    builds = list(_build_further(model, plan, further, other_sizes, options))
    # 2. Most weights are equal, and then in memory once; what was folded from an extent differs.
    by_stage = zip(bundle.codes, *(build.codes for build in builds), strict=True)
    bundle.codes, *code_lists = zip(*map(share_parameters, by_stage), strict=True)
    bundle.more = tuple(replace(build, codes=codes) for build, codes in zip(builds, code_lists, strict=True))
    # 3. Padding, tried out with the largest of all builds.
    bundle.shapes = model.complete(graph)
    if other_sizes == "pad":
        options.progress("padding")
        tolerance = options.tolerance_of(graph, plan)
        bundle.shapes = replace(bundle.shapes, padded=padding.axes(model, bundle, tolerance, options.checks.seed))
    return bundle


def build_stages(graph: Graph, plan: Plan, options: BuildOptions, *, fixed_graph: Graph | None = None) -> BuiltStages:
    """Compile a plan's stages, and compare them with the unsplit model.

    A symbolic graph is compared with `fixed_graph`, the model at a fixed size: a mistake with symbolic extents would be
    in both otherwise.
    """
    # 1. Divide: a plan of another graph is refused before minutes of compiling.
    parts = stage_parts.parts(graph, plan)
    try:
        # 2. Run the unsplit model, so that its weights are gone before those of the stages are there.
        if options.checks.check or options.checks.verify:
            options.progress("running the unsplit model")
        checked = check_import(graph if fixed_graph is None else fixed_graph, plan, options.checks)
        # 3. Compile, and compare.
        compiling = CompileOptions(None, options.tuning_lookup, options.numerics, fixed_graph is not None)
        codes = _compile(graph, plan, parts, options, compiling)
    except BuildError as error:
        if not (cause := _describe_empty_tensor(graph)):
            raise
        raise BuildError(f"{error} ({cause})") from error
    while True:
        try:
            return BuiltStages(parts, codes, checked, _parity(graph, plan, codes, checked, options), plan)
        except BuildError:
            frame = checked.frame.arrays if checked.frame else {}
            # Products of 16 bits are too coarse for some layers.
            if (wider_plan := float32_layers.widen(graph, plan, options.numerics, frame)) is None:
                raise
            plan = wider_plan
        options.progress("keeping more layers in float32")
        codes = _compile(graph, plan, parts, options, compiling)


def _build_further(
    model: OpenModel, plan: Plan, sizes: Sequence[Size], other_sizes: str, options: BuildOptions
) -> Iterator[Build]:
    """Yield the stages of a plan for other sizes, then those for any."""
    for size in sizes:
        text = f"for {describe_size(size)}"
        options.progress(f"reading {text}")
        # A frame of the first size, which a user may have given, does not fit this one.
        yield _build_at(model.at(size), plan, options.of_build(text, frames=()))
    if other_sizes == "symbolic":
        # At the plan's size the import has been compared already.
        first, options = model.size_of(plan), options.of_build("for any size", verify=False)
        yield _build_at(model.symbolic(first), plan, options, fixed_graph=model.at(first))


def _build_at(graph: Graph, plan: Plan, options: BuildOptions, *, fixed_graph: Graph | None = None) -> Build:
    plan = at_other_size(plan, graph)
    codes = build_stages(graph, plan, options, fixed_graph=fixed_graph).codes
    return Build(plan, codes, symbolic=fixed_graph is not None)


def _describe_empty_tensor(graph: Graph) -> str:
    """Describe the first empty tensor behind non-empty inputs, if any."""
    empty = {name for name, spec in graph.tensors.items() if 0 in spec.shape}
    name = next((name for operator in graph.operators for name in operator.outputs if name in empty), "")
    if not name or any(spec.name in empty for spec in graph.inputs):
        return ""
    shapes = ", ".join(f"{spec.name}={','.join(map(str, spec.shape))}" for spec in graph.inputs)
    return f"with {shapes} {name!r} has no elements; give larger extents, as --shape or shapes= of read"


def _compile(
    graph: Graph, plan: Plan, parts: Sequence[GraphPart], options: BuildOptions, compiling: CompileOptions
) -> tuple[StageCode | None, ...]:
    return tuple(compile_plan(plan, _sources(graph, parts), options.progress, compiling))


def _sources(graph: Graph, parts: Sequence[GraphPart]) -> Iterator[StageExport]:
    """Yield the stages, releasing the previous one's memory."""
    for part in parts:
        graph.release()
        yield StageExport(graph, part)
    graph.release()


def _parity(
    graph: Graph,
    plan: Plan,
    codes: Sequence[StageCode | None],
    checked: ImportCheck,
    options: BuildOptions,
) -> Parity | None:
    if (expected := checked.outputs) is None:
        return None
    options.progress("comparing with the unsplit model")
    stages = [(stage, code) for stage, code in zip(plan.units, codes, strict=True) if code is not None]
    tolerance = options.tolerance_of(graph, plan)
    bounds = Bounds.of(options.checks.tolerance, tolerance)

    def judge_stages(tensors: Mapping[str, np.ndarray]) -> Mapping[str, Judgement]:
        return ReferenceCheck(graph, bounds).check_stages(tensors, expected).judgements

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


def _general(plan: Plan, built: BuiltStages, options: BuildOptions) -> list[StageGeneral]:
    generals = []
    for stage, part, code in zip(plan.units, built.parts, built.codes, strict=True):
        # Devices that compute nothing, or call a Python function, have stages without code.
        if code is not None:
            if options.checks.check:
                options.progress(f"timing {stage.name}")
            producers = {
                name: NamedOperator(operator.name, call.kind)
                for operator in part.operators
                for call in operator.calls
                for name in call.outputs
            }
            device = plan.board.device(stage.device)
            is_timed = options.checks.check and runs_here(device)
            generals.append(of_stage(stage, code, device, producers, run=is_timed))
    return generals
