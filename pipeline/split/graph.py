"""Graph: a model's operators and tensors, read from Relax."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tvm import relax, tirx
from tvm.sym import Analyzer

from pipeline.core.plan.plan import TensorSpec
from pipeline.core.tensor_quantization import Quantization
from pipeline.errors import ModelError
from pipeline.model.imported_model import Annotation, ImportedModel, Island
from pipeline.model.model_source import ModelSource
from pipeline.model.operators import operations
from pipeline.model.passes.bindings import Binding, array, kernels, kind, operands
from pipeline.model.passes.constant_file import ConstantFile
from pipeline.model.passes.naming import unique
from pipeline.split.fusion import fuse


@dataclass(frozen=True)
class Operator:
    """One operator of a graph.

    Attributes
    ----------
    name : str
        The model's own name for it, or that of its result.
    kind : str
        Relax operator without its namespace, such as ``"conv2d"``.
    inputs, outputs : tuple of str
        Names of the tensors that it reads and makes; constants do not count.
    flops : int
        Floating-point operations per frame.
    parameter_bytes : int
        Size of the constants it reads.
    group : int
        Number of the fused group it belongs to; groups are contiguous and numbered in order.
    lines : tuple
        Its Relax bindings.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    flops: int
    parameter_bytes: int
    group: int = 0
    lines: tuple[Binding, ...] = field(default=(), repr=False, compare=False)


# A graph is compared by its digest; without `eq`, it may be the key of a cache.
@dataclass(frozen=True, eq=False)
class Graph:
    """A model ready for cuts.

    Attributes
    ----------
    operators : tuple of Operator
        In topological order, operators that fuse side by side.
    tensors : mapping of str to TensorSpec
        All tensors but constants.
    aliases : mapping of str to str
        Tensor in place of each folded name of the model.
    kernels : mapping
        Functions that operators call, by their global variables.
    constant_files : tuple of ConstantFile
        The files in which large constants lie.
    model_ends : tuple of int
        Number of operators up to the end of each of several joined models.
    annotations : tuple of Annotation
        Where the model says that tensors are computed.
    islands : tuple of Island
        Operators that the model's own runtime computes.
    notes : tuple of str
        Assumptions made while the model was read, one line each.
    quantizations : tuple of Quantization
        The numbers that outputs stand for, where the model states them.
    unfused : tuple of int
        Positions inside of what the compiler would fuse at which groups end nevertheless, as a user asked for.
    sources : tuple of ModelSource
        The models that it was read from, in order; empty if no other library runs them.
    model_digest : str
        Digest of the graph in its own order, of one that is in another order; else empty.
    """

    name: str
    operators: tuple[Operator, ...]
    tensors: Mapping[str, TensorSpec]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    aliases: Mapping[str, str] = field(default_factory=dict, repr=False)
    kernels: Mapping[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    constant_files: tuple[ConstantFile, ...] = field(default=(), repr=False, compare=False)
    model_ends: tuple[int, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    islands: tuple[Island, ...] = ()
    notes: tuple[str, ...] = ()
    quantizations: tuple[Quantization, ...] = ()
    unfused: tuple[int, ...] = ()
    sources: tuple[ModelSource, ...] = field(default=(), repr=False)
    model_digest: str = field(default="", repr=False)

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
        return any(island.keeps_state for island in self.islands)

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

    Parameters
    ----------
    size : mapping of str to int, optional
        Values for the symbolic extents of the module, by name: the graph's tensors have them, its operators remain
        open.  Operations are not counted then.

    Raises
    ------
    ModelError
        If an extent is not a number, or negative, or an output does not depend on any input.
    """
    main = source.module["main"]
    extents = Extents(main, size)
    inputs = tuple(_spec(str(param.name), param.ty, source.name, extents) for param in main.params)
    operators = _operators(source, [binding for block in main.body.blocks for binding in block.bindings], extents)
    tensors = {spec.name: spec for spec in inputs}
    for operator in operators:
        for line in operator.lines:
            if line.name in operator.outputs:
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
    if not operators:
        raise ModelError(f"model {source.name!r} has no operator that an output depends on; there is nothing to run")
    return Graph(
        source.name,
        _group_operators(operators, outputs, source.inner_names),
        tensors,
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
    )


class Extents:
    """Turns extents of a module into numbers.

    Parameters
    ----------
    main : tvm.relax.Function
        Its inputs' shapes define the symbolic ones.
    size : mapping of str to int or None
        Their values; without them all extents have to be numbers.

    Attributes
    ----------
    open : bool
        Whether there may be symbolic ones.
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
        return TensorSpec(name, tuple(extents(extent) for extent in ty.shape), str(ty.dtype))
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


def _operators(source: ImportedModel, bindings: Iterable[Any], extents: Extents) -> list[Operator]:
    """Return an operator per call, its tuple's fields included."""
    # Dictionaries keep the order of the bindings, which is topological.
    calls: dict[Any, list[Any]] = {}
    owner: dict[Any, Any] = {}
    for binding in bindings:
        owner_var = binding.value.tuple_value if isinstance(binding.value, relax.TupleGetItem) else binding.var
        owner[binding.var] = owner.get(owner_var, binding.var)
        calls.setdefault(owner[binding.var], []).append(binding)
    names_in_use: set[str] = set()
    return [_operator(source, group, names_in_use, extents) for group in calls.values()]


def _operator(source: ImportedModel, bindings: Sequence[Any], names_in_use: set[str], extents: Extents) -> Operator:
    call, results = bindings[0].value, [binding.var for binding in bindings if not hasattr(binding.var.ty, "fields")]
    read = list(operands(call))
    elements = 0 if extents.open else sum(_elements(var, source, extents) for var in results)
    outputs = tuple(str(var.name) for var in results)
    name = source.operators.get(outputs[0], outputs[0])
    return Operator(
        name=unique(outputs[0] if name in names_in_use else name, names_in_use),
        kind=kind(call),
        inputs=tuple(dict.fromkeys(str(operand.name) for operand in read if isinstance(operand, relax.Var))),
        outputs=outputs,
        flops=0 if extents.open else operations(call, kind(call), elements),
        parameter_bytes=sum(value.nbytes for operand in read if (value := array(operand)) is not None),
        lines=tuple(Binding(binding.var, str(binding.var.name), binding.value) for binding in bindings),
    )


def _elements(var: Any, source: ImportedModel, extents: Extents) -> int:
    return math.prod(_spec(var.name, var.ty, source.name, extents).shape)


def _group_operators(
    operators: Sequence[Operator], outputs: Iterable[TensorSpec], inner_names: frozenset[str]
) -> tuple[Operator, ...]:
    """Return the operators with fusing ones side by side."""
    last = fused_with(operators, {spec.name for spec in outputs}, inner_names)
    # By the last operator of each group, which is a topological order of the groups; within one as they were.
    order = sorted(range(len(operators)), key=lambda index: (last[index], index))
    numbers = {end: number for number, end in enumerate(sorted(set(last)))}
    return tuple(_set_group(operators[index], numbers[last[index]]) for index in order)


def fused_with(operators: Sequence[Operator], leaving: Collection[str], inner_names: frozenset[str]) -> list[int]:
    """Return each operator's last fusion partner; see `pipeline.split.fusion.fuse`."""
    maker = {name: index for index, operator in enumerate(operators) for name in operator.outputs}
    consumers: list[list[int]] = [[] for _ in operators]
    for index, operator in enumerate(operators):
        for source in {maker[name] for name in operator.inputs if name in maker}:
            consumers[source].append(index)
    escapes = [any(name in leaving for name in operator.outputs) for operator in operators]
    parts = [inner_names.issuperset(operator.outputs) for operator in operators]
    return fuse([operator.kind for operator in operators], consumers, escapes, parts)


def _set_group(operator: Operator, group: int) -> Operator:
    return replace(operator, group=group)
