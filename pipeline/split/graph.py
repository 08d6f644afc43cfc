"""Graph: a model's operators and tensors, read from Relax."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tvm import relax, tirx
from tvm.sym import Analyzer

from pipeline.core.compiled_file import CompiledFile
from pipeline.core.model_card import ModelCard
from pipeline.core.plan.plan import TensorSpec
from pipeline.core.plan.state import State
from pipeline.core.tensor_quantization import Quantization
from pipeline.errors import ModelError
from pipeline.model.imported_model import Annotation, ImportedModel, Island
from pipeline.model.model_source import ModelSource
from pipeline.model.operators import operations
from pipeline.model.passes.bindings import array, kernels, operands
from pipeline.model.passes.constant_file import ConstantFile
from pipeline.model.passes.naming import unique
from pipeline.split.model_operators import Operator, calls_of, group_by_model
from pipeline.tvm.objects import items


# A graph is compared by its digest; without `eq`, it may be the key of a cache.
@dataclass(frozen=True, eq=False)
class Graph:
    """A model ready for cuts."""

    name: str
    operators: tuple[Operator, ...]
    """Operators in topological order, those that fuse side by side."""
    tensors: Mapping[str, TensorSpec]
    """Tensors but for constants."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    aliases: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Tensor in place of each folded name of the model."""
    kernels: Mapping[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """Functions that operators call, by their global variables."""
    constant_files: tuple[ConstantFile, ...] = field(default=(), repr=False, compare=False)
    """The files in which large constants lie."""
    model_ends: tuple[int, ...] = ()
    """Number of operators up to the end of each of several joined models."""
    annotations: tuple[Annotation, ...] = ()
    """Devices that the model names for its tensors."""
    islands: tuple[Island, ...] = ()
    """Operators that the model's own runtime computes."""
    notes: tuple[str, ...] = ()
    """Assumptions made while the model was read, one line each."""
    quantizations: tuple[Quantization, ...] = ()
    """The numbers that inputs and outputs stand for, where the model states them."""
    unfused: tuple[int, ...] = ()
    """Positions inside of what the compiler would fuse at which groups end nevertheless, as a user asked for."""
    sources: tuple[ModelSource, ...] = field(default=(), repr=False)
    """The models that it was read from, in order; empty if no other library runs them."""
    model_digest: str = field(default="", repr=False)
    """Digest of the graph in its own order, of one that is in another order; else empty."""
    card: ModelCard | None = field(default=None, repr=False)
    """Card of the model; None if nothing says what it wants and gives."""
    states: tuple[State, ...] = ()
    """Pairs of an output and the input that reads it in the next frame."""
    compiled: tuple[CompiledFile, ...] = ()
    """Files of vendors' compilers, each of which is one operator."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the structure: names, kinds and shapes, not parameters."""
        if self.model_digest:
            return self.model_digest
        # Without parameters: a plan stays valid when a model is trained further.
        text = repr([(operator.name, operator.kind, operator.inputs, operator.outputs) for operator in self.operators])
        return hashlib.sha256((text + repr(sorted(self.tensors.items()))).encode()).hexdigest()

    @cached_property
    def group_ends(self) -> tuple[int, ...]:
        """Number of operators up to each group's end."""
        ends = {operator.group: position + 1 for position, operator in enumerate(self.operators)}
        return tuple(ends.values())

    @property
    def keeps_state(self) -> bool:
        """True if frames must pass an operator one by one, in order."""
        return bool(self.states) or any(island.keeps_state for island in self.islands)

    @property
    def frame_inputs(self) -> tuple[TensorSpec, ...]:
        """Inputs that callers give."""
        kept = {state.input.name for state in self.states}
        return tuple(spec for spec in self.inputs if spec.name not in kept)

    @property
    def frame_outputs(self) -> tuple[TensorSpec, ...]:
        """Outputs that callers get: without states, unless there are no others."""
        kept = {state.output for state in self.states}
        return tuple(spec for spec in self.outputs if spec.name not in kept) or self.outputs

    @property
    def flops(self) -> int:
        """Floating-point operations per frame."""
        return sum(operator.flops for operator in self.operators)

    @property
    def parameter_bytes(self) -> int:
        """Size of all constants, counted once per reading operator."""
        return sum(operator.parameter_bytes for operator in self.operators)

    def release(self) -> None:
        """Free memory used only to read constants."""
        for file in self.constant_files:
            file.release()


def from_relax(source: ImportedModel, size: Mapping[str, int] | None = None) -> Graph:
    """Return the graph of a cleaned module with named variables.

    Raises `ModelError` if an extent is not a number, or negative, or an output does not depend on any input. With a
    `size`, values for the module's symbolic extents by name, the graph's tensors have them, and its operators remain
    open. Operations are not counted then.
    """
    main = source.module["main"]
    extents = Extents(main, size)
    inputs = tuple(_spec(str(param.name), param.ty, source.name, extents) for param in main.params)
    calls = calls_of(binding for block in main.body.blocks for binding in block.bindings)
    tensors = {spec.name: spec for spec in inputs}
    for line in (line for call in calls for line in call.lines if line.name in call.outputs):
        tensors[line.name] = _spec(line.name, line.var.ty, source.name, extents)
    if negative := [spec for spec in tensors.values() if min(spec.shape, default=0) < 0]:
        raise ModelError(
            f"{negative[0].name!r} of model {source.name!r} has the shape {list(negative[0].shape)}; "
            "give inputs larger extents, as --shape or shapes= of read"
        )
    names = _output_names(source, main)
    if unknown := [name for name in names if name not in tensors]:
        raise ModelError(f"model {source.name!r} returns {unknown[0]!r}, which no operator makes; it is damaged")
    outputs = tuple(tensors[name] for name in names)
    if not calls:
        raise ModelError(f"model {source.name!r} has no operator that an output depends on; there is nothing to run")
    names_in_use: set[str] = set()
    calls = [_described(source, call, names_in_use, None if extents.open else tensors) for call in calls]
    operators = group_by_model(calls, {spec.name for spec in outputs}, source.inner_names)
    known_names = {spec.name for spec in inputs}.union(*(operator.outputs for operator in operators))
    return Graph(
        source.name,
        operators,
        {name: spec for name, spec in tensors.items() if name in known_names},
        inputs,
        outputs,
        source.aliases,
        kernels(source.module),
        () if source.constant_file is None else (source.constant_file,),
        annotations=source.annotations,
        islands=source.islands,
        notes=source.notes,
        quantizations=source.quantizations,
        sources=() if source.original is None else (ModelSource.of(source.original, inputs, outputs),),
        card=source.card,
        states=_states(source, dict(zip(source.outputs, outputs, strict=True))),
        compiled=source.compiled,
    )


def _states(source: ImportedModel, outputs: Mapping[str, TensorSpec]) -> tuple[State, ...]:
    return tuple(replace(state, output=outputs[state.output].name) for state in source.states)


class Extents:
    """Turns extents of a module into numbers.

    `size`: their values; without them all extents have to be numbers.
    `open` is True if there may be symbolic ones.
    """

    def __init__(self, main: Any, size: Mapping[str, int] | None) -> None:
        self.open = size is not None
        self._analyzer = Analyzer()
        symbols = {extent for param in main.params for extent in param.ty.shape or () if isinstance(extent, tirx.Var)}
        for symbol in symbols:
            if symbol.name in (size or {}):
                self._analyzer.bind(symbol, tirx.IntImm("int64", (size or {})[symbol.name]))

    def __call__(self, extent: Any) -> int:
        """Return the number; raise `TypeError` if there is none."""
        return int(self._analyzer.simplify(extent) if self.open else extent)


def _spec(name: str, ty: Any, model: str, extents: Callable[[Any], int]) -> TensorSpec:
    try:
        return TensorSpec(name, tuple(extents(extent) for extent in items(ty.shape.values)), str(ty.dtype))
    except (TypeError, AttributeError):
        raise ModelError(
            f"model {model!r}: tensor {name!r} has no fixed shape ({ty}); give the inputs fixed extents"
        ) from None


def _output_names(source: ImportedModel, main: Any) -> list[str]:
    body = main.body.body
    fields = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    for name, output in zip(source.outputs, fields, strict=True):
        if not isinstance(output, relax.Var):
            raise ModelError(f"model {source.name!r}: output {name!r} does not depend on an input; remove it")
    return [str(output.name) for output in fields]


def _described(
    source: ImportedModel, call: Operator, names_in_use: set[str], tensors: Mapping[str, TensorSpec] | None
) -> Operator:
    """Return a call with its model's name for it and its costs."""
    name, value = source.operators.get(call.name, call.name), call.lines[0].value
    elements = 0 if tensors is None else sum(math.prod(tensors[output].shape) for output in call.outputs)
    return replace(
        call,
        name=unique(call.name if name in names_in_use else name, names_in_use),
        flops=0 if tensors is None else operations(value, call.kind, elements),
        parameter_bytes=sum(values.nbytes for operand in operands(value) if (values := array(operand)) is not None),
    )
