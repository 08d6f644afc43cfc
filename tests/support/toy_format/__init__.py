"""A format of models in text: inputs with their extents, operators with their operands, and outputs.

::

    toy
    input x 2 3
    double a x
    cube y a
    output y

TVM is given ``double`` and ``add``; ``cube`` is left to the format's own library, which knows all three.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tvm import relax

from pipeline.core.packed_model import RUNTIMES
from pipeline.frontends.fallback import UNKNOWN, Conversion, OperatorRefused
from pipeline.model.imported_model import ImportedModel, Island
from pipeline.model.passes.bindings import call_island

KERNELS: dict[str, Callable[..., Any]] = {
    "double": lambda x: x + x,
    "add": lambda x, y: x + y,
    "cube": lambda x: x * x * x,
}
CONVERTERS = {"double": lambda x: relax.op.add(x, x), "add": relax.op.add}


class Line(NamedTuple):
    """An operator; or an input, with its extents for operands, or an output."""

    kind: str
    name: str
    operands: tuple[str, ...]


def parse(text: str) -> list[Line]:
    """Return the lines of a model."""
    words = [line.split() for line in text.splitlines()[1:]]
    return [Line(kind, name, tuple(operands)) for kind, name, *operands in words]


def write(lines: Sequence[Line]) -> bytes:
    """Return a model's file."""
    return "\n".join(["toy", *(" ".join((line.kind, line.name, *line.operands)) for line in lines)]).encode()


def outputs(lines: Sequence[Line]) -> list[str]:
    """Return the names of a model's outputs."""
    return [line.name for line in lines if line.kind == "output"]


def run(lines: Sequence[Line], frame: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return all tensors of a frame."""
    tensors = dict(frame)
    for line in lines:
        if line.kind in KERNELS:
            tensors[line.name] = KERNELS[line.kind](*(tensors[operand] for operand in line.operands))
    return tensors


def load(path: Path, _shapes: Any, *, fallback: bool = True) -> ImportedModel:
    """Read a file."""
    return ToyConversion(path, parse(path.read_text()), fallback=fallback).run({})


class ToyConversion(Conversion):
    """A model on its way to Relax."""

    def __init__(self, path: Path, lines: Sequence[Line], *, fallback: bool) -> None:
        super().__init__(
            repr(str(path)),
            [line for line in lines if line.kind not in ("input", "output")],
            RUNTIMES["toy"],
            fallback=fallback,
        )
        self._path, self._lines = path, lines

    def form(self, operator: Line) -> tuple[Any, ...]:
        return (operator.kind,)

    def describe(self, operator: Line, cause: str) -> str:
        return f"{operator.kind} ({operator.name}){cause}"

    def import_model(self, reasons: Mapping[int, str]) -> tuple[ImportedModel, Sequence[bytes]]:
        islands = [Island(self.operators[place].name, (self.operators[place].kind,), UNKNOWN) for place in reasons]
        shapes = {line.name: [int(extent) for extent in line.operands] for line in self._lines if line.kind == "input"}
        values = {name: relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items()}
        builder = relax.BlockBuilder()
        with builder.function("main", list(values.values())):
            with builder.dataflow():
                for place, line in enumerate(self.operators):
                    values[line.name] = builder.emit(self._convert(line, values, is_island=place in reasons))
                (output,) = outputs(self._lines)
                result = builder.emit_output(values[output])
            builder.emit_func_output(result)
        names = {value: name for name, value in values.items()}
        model = ImportedModel(self._path.stem, builder.get(), (output,), names=names, islands=tuple(islands))
        return model, [b""] * len(islands)

    def _convert(self, line: Line, values: Mapping[str, Any], *, is_island: bool) -> Any:
        operands = [values[operand] for operand in line.operands]
        if is_island:
            shape = [str(int(extent)) for extent in operands[0].ty.shape]
            part = [
                *(Line("input", name, tuple(shape)) for name in dict.fromkeys(line.operands)),
                line,
                Line("output", line.name, ()),
            ]
            return call_island(self.library, write(part), operands, [operands[0].ty])
        if line.kind not in CONVERTERS:
            raise OperatorRefused(line, line.name, UNKNOWN)
        return CONVERTERS[line.kind](*operands)
