"""Part of a TFLite model between tensors, as its own file."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import ModelError
from pipeline.frontends.extraction import NoCounterpart, Region
from pipeline.frontends.tflite import read_graph
from pipeline.frontends.tflite.flatbuffer import TfliteGraph, TfliteTensor
from pipeline.frontends.tflite.island_writer import IslandWriter
from pipeline.frontends.tflite.islands import find_ties


class Extractor:
    """Cuts parts out of a file."""

    def __init__(self, model: str | Path, shapes: Mapping[str, Sequence[int]]) -> None:
        self._path, self._shapes = Path(model), {name: tuple(shape) for name, shape in shapes.items()}

    def extract(self, region: Region) -> bytes:
        """Return a file of a region; `NoCounterpart` if the model has no such part."""
        inputs = [self._tensor(name, spec) for name, spec in region.inputs.items()]
        outputs = [self._tensor(name, spec) for name, spec in region.outputs.items()]
        operators = [self._graph.operators[number] for number in sorted(self._collect(region, inputs, outputs))]
        specs = [*region.inputs.values(), *region.outputs.values()]
        names = {tensor.number: spec.name for tensor, spec in zip((*inputs, *outputs), specs, strict=True)}
        return self._writer.write_file(operators, inputs, outputs, names)

    def _tensor(self, name: str, spec: TensorSpec) -> TfliteTensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise NoCounterpart(f"the model has no tensor {name!r}")
        if (tensor.shape, tensor.dtype) != (spec.shape, spec.dtype):
            raise NoCounterpart(f"{name!r} is {tensor.dtype}{list(tensor.shape)} in the model, which is not {spec}")
        return tensor

    def _collect(self, region: Region, inputs: Sequence[TfliteTensor], outputs: Sequence[TfliteTensor]) -> set[int]:
        """Return the operators of a region, by number."""
        operators = set[int]()
        pending, visited = list(outputs), {tensor.number for tensor in inputs}
        while pending:
            tensor = pending.pop()
            if tensor.number in visited or tensor.is_constant:
                continue
            visited.add(tensor.number)
            region.check_inside(tensor.name)
            maker = self._makers.get(tensor.number)
            if maker is None:
                if tensor.is_variable:
                    continue
                raise NoCounterpart(f"it needs {tensor.name!r} of the model, which the stage does not read")
            new_operators = self._groups.get(maker, {maker}) - operators
            operators |= new_operators
            pending += [operand for number in new_operators for operand in self._graph.operators[number].operands]
        return operators

    @functools.cached_property
    def _graph(self) -> TfliteGraph:
        try:
            return read_graph(self._path, self._shapes)[0]
        except ModelError as error:
            raise NoCounterpart(str(error)) from error

    @functools.cached_property
    def _writer(self) -> IslandWriter:
        return IslandWriter(self._graph)

    @functools.cached_property
    def _tensors(self) -> dict[str, TfliteTensor]:
        graph = self._graph
        # An output that is an input, or the same as another one, has a second name.
        return dict(zip(graph.output_names, graph.outputs, strict=True)) | {
            tensor.name: tensor for tensor in graph.tensors
        }

    @functools.cached_property
    def _makers(self) -> dict[int, int]:
        return {tensor.number: operator.number for operator in self._graph.operators for tensor in operator.outputs}

    @functools.cached_property
    def _groups(self) -> dict[int, set[int]]:
        """Groups of operators that share state, read or not."""
        return {number: set(group) for group in find_ties(self._graph.operators) for number in group}
