"""StageExport: a stage as a model for other tool chains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pipeline import frontends
from pipeline.core import packed_model
from pipeline.core.packed_value import is_packed
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import BuildError
from pipeline.export import relax_onnx
from pipeline.frontends import formats
from pipeline.frontends.extraction import NoCounterpart, Region
from pipeline.frontends.formats import Format
from pipeline.model.model_source import ModelSource
from pipeline.split import extract
from pipeline.split.extract import GraphPart
from pipeline.split.graph import Graph

EXTRACTED = "extracted"
"""Origin of a stage cut out of the model itself."""

WRITTEN = "written"
"""Origin of a stage written anew from the compiler's input."""

# Of each source of a graph, for its stages: to read a model costs more than to cut it.
_CACHE: WeakKeyDictionary[Graph, dict[int, Any]] = WeakKeyDictionary()


class StageExport:
    """A stage in other formats than TVM's."""

    def __init__(self, graph: Graph, part: GraphPart) -> None:
        self._graph, self._part = graph, part

    def module(self) -> Any:
        """Return the Relax module of the stage."""
        return extract.module(self._part)

    def onnx(self) -> Any:
        """Return the stage as ``onnx.ModelProto``.

        Inputs and outputs have the graph's names, in the plan's order. Raises `BuildError` if its operators have no
        form in ONNX, or the model's file has changed since it was read.
        """
        return self.onnx_and_origin()[0]

    def onnx_and_origin(self, *, open_ends: bool = False) -> tuple[Any, str]:
        """Return the result of `onnx`, and `EXTRACTED` or `WRITTEN`.

        With `open_ends`, what frames carry as packed bytes is what it is in the model: text, a sequence, or a tensor
        whose shape depends on values.
        """
        try:
            return self._extract(formats.ONNX, open_ends=open_ends), EXTRACTED
        except NoCounterpart as error:
            refusal = str(error)
        if any(map(is_packed, (*self._part.inputs, *self._part.outputs))):
            raise BuildError(f"{self} has no form in ONNX: {refusal}")
        try:
            return relax_onnx.write(self.module(), self._graph.name), WRITTEN
        except BuildError as error:
            raise BuildError(f"{self} has no form in ONNX: {refusal}, and it {error}") from error

    def tflite(self) -> bytes:
        """Return the stage as a TFLite file; see `part`."""
        return self.part(formats.TFLITE)

    def compiled(self) -> bytes:
        """Return the compiled file that the stage is, or nothing.

        Raises `BuildError` if it has other operators, too, or hands over other tensors than the file has.
        """
        files = {file.tensor: file for file in self._graph.compiled}
        operator = next((operator for operator in self._part.operators if files.keys() & operator.outputs), None)
        if operator is None:
            return b""
        ends = [[spec.name for spec in specs] for specs in (self._part.inputs, self._part.outputs)]
        if len(self._part.operators) > 1 or ends != [list(operator.inputs), list(operator.outputs)]:
            raise BuildError(
                f"{self} has the compiled file {operator.name!r}, which has to be a stage of its own, with the inputs "
                f"{', '.join(operator.inputs)} and the outputs {', '.join(operator.outputs)}; cut around it"
            )
        packed, *_ = operator.lines[0].value.args[1].fields
        return packed_model.unpack(np.from_dlpack(packed.value))

    def part(self, model_format: Format) -> bytes:
        """Return the stage as a file, cut out of the model's.

        Raises `BuildError` if the model is of another format, or has no such part, or its file has changed since it was
        read.
        """
        if any(map(is_packed, (*self._part.inputs, *self._part.outputs))):
            raise BuildError(f"{self} has an end that frames carry as packed bytes, which no file of its kind takes")
        try:
            model: bytes = self._extract(model_format)
        except NoCounterpart as error:
            raise BuildError(f"{self} is no part of {model_format}: {error}") from error
        return model

    def __str__(self) -> str:
        """Name the stage by its operators, for messages."""
        operators = self._part.operators
        return f"the stage from {operators[0].name!r} to {operators[-1].name!r} of {self._graph.name!r}"

    def _extract(self, model_format: Format, *, open_ends: bool = False) -> Any:
        """Return the stage cut out of the first matching model. Raise `NoCounterpart` if none has it."""
        refusals = dict[str, None]()
        for number, source in enumerate(self._graph.sources):
            # First: what is gone has no format.
            if source.has_changed:
                raise BuildError(f"{str(source.model)!r} is not what was read any more; read it again, and plan again")
            if frontends.kind(source.model) is not model_format:
                continue
            try:
                return self._extractor(number, model_format).extract(self._region(source, open_ends=open_ends))
            except NoCounterpart as error:
                refusals[str(error)] = None
        raise NoCounterpart("; ".join(refusals) or f"its model is not read from {model_format}")

    def _extractor(self, number: int, model_format: Format) -> Any:
        extractors = _CACHE.setdefault(self._graph, {})
        if number not in extractors:
            source = self._graph.sources[number]
            specs = {name: self._graph.tensors[source.tensor(name)] for name in source.inputs}
            shapes = {name: spec.shape for name, spec in specs.items() if not is_packed(spec)}
            extractors[number] = model_format.module("extraction").Extractor(source.model, shapes)
        return extractors[number]

    def _region(self, source: ModelSource, *, open_ends: bool) -> Region:
        """Return the stage's region in one of the graph's models."""
        names = {source.tensor(name): name for name in (*source.inputs, *source.outputs, *source.names)}
        if len(self._graph.sources) == 1:
            names = {name: name for name in self._graph.tensors} | names
        inner_names = {name for operator in self._part.operators for name in operator.outputs}
        inner_names.update(spec.name for spec in (*self._part.inputs, *self._graph.inputs))
        return Region(
            inputs=_by_source({spec.name: spec for spec in self._part.inputs}, names),
            outputs=_by_source({spec.name: spec for spec in self._part.outputs}, names),
            outside={names[name] for name in self._graph.tensors.keys() - inner_names if name in names},
            open_ends=open_ends,
        )


def _by_source(specs: Mapping[str, TensorSpec], names: Mapping[str, str]) -> dict[str, TensorSpec]:
    """Return specifications by source names; `NoCounterpart` for another model."""
    if unknown := [name for name in specs if name not in names]:
        raise NoCounterpart(f"{unknown[0]!r} is a tensor of another model of the chain")
    return {names[name]: spec for name, spec in specs.items()}
