"""Graph: a model's operators and tensors in topological order, read from a Relax module."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tvm import relax, tirx
from tvm.sym import Analyzer

from pipeline.errors import ModelError
from pipeline.plans import TensorSpec
from pipeline.split.flops import flops
from pipeline.split.frontends.imported import Imported
from pipeline.split.fusion import fuse
from pipeline.split.kept import Kept
from pipeline.split.lines import Line, array, kernels, kind, operands
from pipeline.split.naming import unique


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
    lines: tuple[Line, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True)
class Graph:
    """A model that is ready to be cut.

    Attributes
    ----------
    name : str
    operators : tuple of Operator
        In topological order, operators that fuse side by side.
    tensors : mapping of str to TensorSpec
        All tensors but constants.
    inputs, outputs : tuple of TensorSpec
    aliases : mapping of str to str
        From names of the model that were folded away to the tensor that took their place.
    kernels : mapping
        Functions that operators call, by their global variables.
    kept : Kept, optional
        The file in which large constants lie.
    """

    name: str
    operators: tuple[Operator, ...]
    tensors: Mapping[str, TensorSpec]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    aliases: Mapping[str, str] = field(default_factory=dict, repr=False)
    kernels: Mapping[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    kept: Kept | None = field(default=None, repr=False, compare=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the structure: names, kinds and shapes, not parameters."""
        text = repr([(each.name, each.kind, each.inputs, each.outputs) for each in self.operators])
        return hashlib.sha256((text + repr(sorted(self.tensors.items()))).encode()).hexdigest()

    @cached_property
    def group_ends(self) -> tuple[int, ...]:
        """For each fused group, the number of operators up to its end."""
        ends = {operator.group: position + 1 for position, operator in enumerate(self.operators)}
        return tuple(ends.values())

    @property
    def flops(self) -> int:
        """Floating-point operations per frame."""
        return sum(operator.flops for operator in self.operators)

    @property
    def parameter_bytes(self) -> int:
        """Size of all constants; one that several operators read counts for each."""
        return sum(operator.parameter_bytes for operator in self.operators)

    def release(self) -> None:
        """Free memory that was only needed to read constants."""
        if self.kept is not None:
            self.kept.release()


def from_relax(imported: Imported, size: Mapping[str, int] | None = None) -> Graph:
    """Return the graph of a cleaned module whose variables carry the tensors' names.

    Parameters
    ----------
    imported : Imported
    size : mapping of str to int, optional
        Values for the symbolic extents of the module, by name: the graph's tensors have them, its operators remain
        open.  Operations are not counted then.

    Raises
    ------
    ModelError
        If an extent is not a number, or an output does not depend on any input.
    """
    main = imported.module["main"]
    extents = Extents(main, size)
    inputs = tuple(_spec(str(param.name), param.ty, imported.name, extents) for param in main.params)
    operators = _operators(imported, [binding for block in main.body.blocks for binding in block.bindings], extents)
    tensors = {spec.name: spec for spec in inputs}
    for operator in operators:
        for line in operator.lines:
            if line.name in operator.outputs:
                tensors[line.name] = _spec(line.name, line.var.ty, imported.name, extents)
    outputs = tuple(tensors[name] for name in _output_names(imported, main))
    if not operators:
        raise ModelError(f"model {imported.name!r} has no operator that an output depends on; there is nothing to run")
    return Graph(
        imported.name,
        _grouped(operators, outputs, imported.inner),
        tensors,
        inputs,
        outputs,
        imported.aliases,
        kernels(imported.module),
        imported.kept,
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
        self._known = Analyzer()
        symbols = {each for param in main.params for each in param.ty.shape or () if isinstance(each, tirx.Var)}
        for symbol in symbols:
            if symbol.name in (size or {}):
                self._known.bind(symbol, tirx.IntImm("int64", (size or {})[symbol.name]))

    def __call__(self, extent: Any) -> int:
        """Return the number; raise `TypeError` if there is none."""
        return int(self._known.simplify(extent) if self.open else extent)


def _spec(name: str, ty: Any, model: str, extents: Callable[[Any], int]) -> TensorSpec:
    try:
        return TensorSpec(name, tuple(extents(extent) for extent in ty.shape), str(ty.dtype))
    except (TypeError, AttributeError):
        raise ModelError(
            f"model {model!r}: tensor {name!r} has no fixed shape ({ty}); give the inputs fixed extents"
        ) from None


def _output_names(imported: Imported, main: Any) -> list[str]:
    body = main.body.body
    fields = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    for name, output in zip(imported.outputs, fields, strict=True):
        if not isinstance(output, relax.Var):
            raise ModelError(f"model {imported.name!r}: output {name!r} does not depend on an input; remove it")
    return [str(output.name) for output in fields]


def _operators(imported: Imported, bindings: Iterable[Any], extents: Extents) -> list[Operator]:
    """One operator per call; taking a tuple's fields apart belongs to the call that makes the tuple."""
    calls: dict[Any, list[Any]] = {}
    owner: dict[Any, Any] = {}
    for binding in bindings:
        source = binding.value.tuple_value if isinstance(binding.value, relax.TupleGetItem) else binding.var
        owner[binding.var] = owner.get(source, binding.var)
        calls.setdefault(owner[binding.var], []).append(binding)
    taken: set[str] = set()
    return [_operator(imported, group, taken, extents) for group in calls.values()]


def _operator(imported: Imported, bindings: Sequence[Any], taken: set[str], extents: Extents) -> Operator:
    call, results = bindings[0].value, [each.var for each in bindings if not hasattr(each.var.ty, "fields")]
    read = list(operands(call))
    outputs = tuple(str(var.name) for var in results)
    name = imported.operators.get(outputs[0], outputs[0])
    return Operator(
        name=unique(outputs[0] if name in taken else name, taken),
        kind=kind(call),
        inputs=tuple(dict.fromkeys(str(each.name) for each in read if isinstance(each, relax.Var))),
        outputs=outputs,
        flops=0 if extents.open else flops(call, kind(call), sum(_elements(var, imported, extents) for var in results)),
        parameter_bytes=sum(found.nbytes for each in read if (found := array(each)) is not None),
        lines=tuple(Line(each.var, str(each.var.name), each.value) for each in bindings),
    )


def _elements(var: Any, imported: Imported, extents: Extents) -> int:
    return math.prod(_spec(var.name, var.ty, imported.name, extents).shape)


def _grouped(
    operators: Sequence[Operator], outputs: Iterable[TensorSpec], inner: frozenset[str]
) -> tuple[Operator, ...]:
    """Return the operators with those that fuse side by side."""
    maker = {name: index for index, operator in enumerate(operators) for name in operator.outputs}
    consumers: list[list[int]] = [[] for _ in operators]
    for index, operator in enumerate(operators):
        for source in {maker[name] for name in operator.inputs if name in maker}:
            consumers[source].append(index)
    leaving = {spec.name for spec in outputs}
    escapes = [not leaving.isdisjoint(operator.outputs) for operator in operators]
    parts = [inner.issuperset(operator.outputs) for operator in operators]
    last = fuse([operator.kind for operator in operators], consumers, escapes, parts)
    order = sorted(range(len(operators)), key=lambda index: (last[index], index))
    numbers = {end: number for number, end in enumerate(sorted(set(last)))}
    return tuple(_in_group(operators[index], numbers[last[index]]) for index in order)


def _in_group(operator: Operator, group: int) -> Operator:
    return replace(operator, group=group)
