"""Part of an ONNX model between tensors, as its own model."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx import external_data_helper

from pipeline.core.packed_model import ONNX_RUNTIME
from pipeline.errors import ModelError, reason
from pipeline.frontends.extraction import NoCounterpart, Region
from pipeline.frontends.onnx import read_fixed
from pipeline.frontends.onnx.conversion import simplify
from pipeline.frontends.onnx.experimental import replace_experimental
from pipeline.frontends.onnx.external_data import external_tensors
from pipeline.frontends.onnx.reference import literal_options, open_session
from pipeline.frontends.onnx.region_writer import RegionWriter
from pipeline.system.files import utf8_folder

LARGEST_BYTES = 2**31 - 2**20
"""Size limit of a part: protobuf writes no message of 2 GiB, and the weights are not all of it."""


class Extractor:
    """Cuts parts out of a model."""

    def __init__(self, model: Any, shapes: Mapping[str, Sequence[int]]) -> None:
        self._model, self._shapes = model, {name: tuple(shape) for name, shape in shapes.items()}

    def extract(self, region: Region) -> Any:
        """Return an ``onnx.ModelProto`` of a region; `NoCounterpart` if the model has no such part."""
        try:
            return self._extract(self._model_writer, region)
        except NoCounterpart as error:
            refusal = error
        try:
            return self._extract(self._plain_writer, region)
        except NoCounterpart:
            # What the user's own operators lack says more than what those lack that they consist of.
            raise refusal from None

    def _extract(self, writer: RegionWriter, region: Region) -> Any:
        model = writer.write(region)
        self._load_data(model)
        if writer.has_unknown_ends(region):
            _check_runnable(model)
        return model

    def _load_data(self, model: Any) -> None:
        """Load external data into a model."""
        tensors = list(external_tensors(model))
        if sum(_bytes(tensor) for tensor in tensors) + model.ByteSize() > LARGEST_BYTES:
            raise NoCounterpart("it has 2 GiB of parameters or more, which no ONNX file holds by itself")
        with utf8_folder(self._source[0].parent) as folder:
            for tensor in tensors:
                external_data_helper.load_external_data_for_tensor(tensor, str(folder))
                tensor.data_location = tensor.DEFAULT
                del tensor.external_data[:]

    @functools.cached_property
    def _source(self) -> tuple[Path, Any]:
        try:
            return read_fixed(self._model, self._shapes)
        except ModelError as error:
            raise NoCounterpart(str(error)) from error

    @functools.cached_property
    def _model_writer(self) -> RegionWriter:
        """Writer of the model's own operators, with folded shapes."""
        path, model = self._source
        return RegionWriter(_simplify(path, model, ()))

    @functools.cached_property
    def _plain_writer(self) -> RegionWriter:
        """Writer of the importer's operators. A stage may begin inside one of the model's."""
        path, model = self._source
        return RegionWriter(_simplify(path, replace_experimental(model), None))


def _simplify(path: Path, model: Any, kinds: Sequence[str] | None) -> Any:
    try:
        return simplify(path, model, kinds)
    except ModelError as error:
        raise NoCounterpart(str(error)) from error


def _bytes(tensor: Any) -> int:
    return next((int(entry.value) for entry in tensor.external_data if entry.key == "length"), 0)


def _check_runnable(model: Any) -> None:
    """Raise `NoCounterpart` unless ONNX Runtime infers a part's types."""
    if not ONNX_RUNTIME.is_installed:
        raise NoCounterpart("the types of its tensors are not known without ONNX Runtime")
    try:
        open_session(model, literal_options())
    except Exception as error:  # it raises several unrelated types
        raise NoCounterpart(f"ONNX Runtime does not take it: {reason(error, line=0)}") from error
