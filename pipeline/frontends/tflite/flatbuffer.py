"""Operators and tensors of a TFLite file for this folder."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite

from pipeline.core.packed_value import CAPACITY
from pipeline.core.packed_value import DTYPE as PACKED_DTYPE
from pipeline.core.tensor_quantization import Quantization
from pipeline.errors import ModelError
from pipeline.model.passes.naming import unique

IDENTIFIER = b"TFL3"
"""Identifier of the file format, behind the offset of its root."""


def _names(enumeration: Any) -> dict[int, str]:
    return {value: name for name, value in vars(enumeration).items() if not name.startswith("_")}


_KINDS = _names(tflite.BuiltinOperator)
_OPTIONS = _names(tflite.BuiltinOptions)

# What frames and stages have no dtype for (strings, resources, complex numbers, four bits) is named all the same.
_DTYPES = {number: name.lower() for number, name in _names(tflite.TensorType).items()}
_ARRAY_DTYPES = {
    name: np.dtype(name)
    for name in (
        "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "bool",
    )
}  # fmt: skip


# Of weights whose activations are real numbers; others are indices and sizes.
_WEIGHT_DTYPES = {"int2", "int4", "int8", "uint8"}


@dataclass(frozen=True)
class TensorScale:
    """Quantisation of a tensor: a real number is the scale times the integer minus the zero point."""

    scales: np.ndarray
    """Scale for all, or one for each position along `axis`; float32."""
    zero_points: np.ndarray
    """Zero points, as many as scales; int64."""
    axis: int

    @property
    def per_channel(self) -> bool:
        """True with several scales."""
        return self.scales.size > 1


@dataclass(eq=False)
class TfliteTensor:
    """A tensor of a TFLite graph."""

    number: int
    """Position in the file."""
    name: str
    """The model's, where it has one and no earlier tensor has it as well; unique."""
    shape: tuple[int, ...]
    dtype: str
    """Dtype in NumPy's words; others, such as ``"string"``, are `in_frames` of no stage."""
    scale: TensorScale | None = None
    values: np.ndarray | None = None
    """Values of a constant whose dtype NumPy has; in the file's memory, or folded."""
    is_constant: bool = False
    """True if the file has its values, or it was folded."""
    is_variable: bool = False
    """True if it keeps its values from one frame to the next."""
    is_open: bool = False
    """True if its shape depends on values."""
    is_sparse: bool = False
    """True if it is stored without its zeros."""
    packed_because: str = ""
    """Reason that frames carry it as bytes, at an end of the model; empty if they carry it unchanged."""

    @property
    def frame_type(self) -> tuple[tuple[int, ...], str]:
        """Shape and dtype in frames."""
        return ((CAPACITY,), PACKED_DTYPE) if self.packed_because else (self.shape, self.dtype)

    @property
    def quantization(self) -> Quantization | None:
        """Quantisation of a tensor of quantised numbers, else None."""
        if self.scale is None or not self.is_quantized or self.packed_because:
            return None
        scales, zero_points = self.scale.scales.tolist(), self.scale.zero_points.tolist()
        return Quantization(self.name, tuple(scales), tuple(zero_points), self.scale.axis)

    @property
    def in_frames(self) -> bool:
        """True if it may travel between stages."""
        return self.dtype in _ARRAY_DTYPES and not self.is_open

    @property
    def constant(self) -> np.ndarray:
        """Values of a constant; `ValueError` for other tensors."""
        if self.values is None:
            raise ValueError(f"{self.name!r} is no constant")
        return self.values

    @property
    def is_quantized(self) -> bool:
        """True for integers with the meaning of real numbers."""
        return self.scale is not None and self.dtype not in ("float16", "float32", "float64")


@dataclass(frozen=True, eq=False)
class TfliteOperator:
    """An operator of a TFLite graph."""

    number: int
    """Position in the file."""
    kind: str
    """Kind in the words of the schema, such as ``"CONV_2D"``; of a custom operator with its own name behind."""
    inputs: tuple[TfliteTensor | None, ...]
    """Inputs; None where an optional one is missing."""
    outputs: tuple[TfliteTensor, ...]
    table: Any
    """The flatbuffer's part. A `tflite.Operator`."""

    @functools.cached_property
    def options(self) -> Any:
        """Options, such as a ``tflite.Conv2DOptions``, or None."""
        name = _OPTIONS.get(self.table.BuiltinOptionsType(), "NONE")
        if name == "NONE" or self.table.BuiltinOptions() is None:
            return None
        options = getattr(tflite, name)()
        options.Init(self.table.BuiltinOptions().Bytes, self.table.BuiltinOptions().Pos)
        return options

    @property
    def operands(self) -> tuple[TfliteTensor, ...]:
        """Present inputs."""
        return tuple(tensor for tensor in self.inputs if tensor is not None)

    @property
    def is_quantized(self) -> bool:
        """True with a quantised input or output."""
        return any(tensor.is_quantized for tensor in (*self.operands, *self.outputs))

    @property
    def quantizes_anew(self) -> bool:
        """True if only weights are quantised: data get each frame's scale."""
        if not self.operands or self.kind in {"DEQUANTIZE", "EMBEDDING_LOOKUP", "GATHER"}:
            return False
        data, *parameters = self.operands
        reads_real = not data.is_constant and data.dtype.startswith("float")
        return reads_real and any(tensor.dtype in _WEIGHT_DTYPES and tensor.is_constant for tensor in parameters)

    def __str__(self) -> str:
        """Name it for messages."""
        return f"{self.kind} (that makes {self.outputs[0].name!r})" if self.outputs else self.kind


class TfliteGraph:
    """A graph of a TFLite file, by default its main one.

    `is_resized` tells that its inputs have other shapes than the file states. `first_values` are those in a first frame
    of the last inputs, which hold the state that the last outputs compute. `output_names` are unique, also where an
    output is an input or the same as another. A damaged file raises errors of `struct`, NumPy or flatbuffers: each
    field may point beside the buffer.
    """

    def __init__(self, content: bytes, number: int = 0) -> None:
        self.content = content
        self.is_resized = False
        self.first_values: list[np.ndarray] = []
        self.model = tflite.Model.GetRootAsModel(content, 0)
        if number >= self.model.SubgraphsLength():
            raise ModelError("it has no graph")
        self.subgraph = self.model.Subgraphs(number)
        self.tensors = list(self._tensors())
        self.operators = [self._operator(number) for number in range(self.subgraph.OperatorsLength())]
        self.inputs = self._pick(self.subgraph.InputsAsNumpy())
        self.outputs = self._pick(self.subgraph.OutputsAsNumpy())
        self._mark_empty_constants()
        used_names = {tensor.name for tensor in self.inputs}
        self.output_names = [unique(tensor.name, used_names) for tensor in self.outputs]

    def _mark_empty_constants(self) -> None:
        """Give empty constants their values. Their buffers look like those of computed tensors."""
        computed = {tensor.number for operator in self.operators for tensor in operator.outputs}
        computed |= {tensor.number for tensor in self.inputs}
        for tensor in self.tensors:
            if 0 in tensor.shape and tensor.in_frames and not tensor.is_variable and tensor.number not in computed:
                tensor.values, tensor.is_constant = np.empty(tensor.shape, _ARRAY_DTYPES[tensor.dtype]), True

    def stored_bytes(self, tensor: TfliteTensor) -> np.ndarray:
        """Return a constant's bytes in the file."""
        return np.asarray(self._data(self.model.Buffers(self.subgraph.Tensors(tensor.number).Buffer())), np.uint8)

    def stored_values(self, tensor: TfliteTensor) -> np.ndarray:
        """Return a constant's stored elements, without a sparse one's zeros."""
        return np.frombuffer(self.stored_bytes(tensor), _ARRAY_DTYPES[tensor.dtype])

    def _data(self, buffer: Any) -> Any:
        # Files of more than 2 GiB have their data behind the flatbuffer; there is none at the places 0 and 1.
        if buffer.Offset() > 1:
            return np.frombuffer(self.content, np.uint8, buffer.Size(), buffer.Offset())
        return _vector(buffer.DataAsNumpy())

    def _pick(self, numbers: Any) -> list[TfliteTensor]:
        return [self.tensors[int(number)] for number in _vector(numbers)]

    def _tensors(self) -> Iterator[TfliteTensor]:
        used_names: set[str] = set()
        for number in range(self.subgraph.TensorsLength()):
            table = self.subgraph.Tensors(number)
            name = (table.Name() or b"").decode(errors="replace") or f"tensor_{number}"
            shape = tuple(int(extent) for extent in _vector(table.ShapeAsNumpy()))
            dtype = _DTYPES.get(table.Type(), f"type {table.Type()}")
            data = self._data(self.model.Buffers(table.Buffer()))
            is_sparse = table.Sparsity() is not None
            yield TfliteTensor(
                number=number,
                name=unique(name, used_names),
                shape=shape,
                dtype=dtype,
                scale=_scale(table.Quantization()),
                values=None if is_sparse else _values(name, shape, dtype, data),
                is_constant=len(data) > 0,
                is_variable=bool(table.IsVariable()),
                is_sparse=is_sparse,
            )

    def _operator(self, number: int) -> TfliteOperator:
        table = self.subgraph.Operators(number)
        code = self.model.OperatorCodes(table.OpcodeIndex())
        # Kinds up to 126 may stand in either field.
        kind_number = max(code.DeprecatedBuiltinCode(), code.BuiltinCode())
        kind = _KINDS.get(kind_number, f"operator {kind_number}")
        inputs = tuple(None if tensor < 0 else self.tensors[int(tensor)] for tensor in _vector(table.InputsAsNumpy()))
        if kind == "CUSTOM":
            kind = f"CUSTOM {(code.CustomCode() or b'').decode(errors='replace')}"
        return TfliteOperator(number, kind, inputs, tuple(self._pick(table.OutputsAsNumpy())), table)


def _vector(values: Any) -> Any:
    # The package returns 0 for a vector that is not there.
    return values if isinstance(values, np.ndarray) else ()


def _scale(table: Any) -> TensorScale | None:
    scales = np.array(_vector(table.ScaleAsNumpy()) if table is not None else (), np.float32)
    if not scales.size:
        return None
    zero_points = np.array(_vector(table.ZeroPointAsNumpy()), np.int64)
    zeros = zero_points if zero_points.size else np.zeros(1, np.int64)
    # One zero point may serve all channels.
    return TensorScale(scales, np.broadcast_to(zeros, scales.shape), int(table.QuantizedDimension()))


def _values(name: str, shape: Sequence[int], dtype: str, data: Any) -> np.ndarray | None:
    if not len(data) or dtype not in _ARRAY_DTYPES:
        return None
    values = np.frombuffer(data, _ARRAY_DTYPES[dtype])
    if values.size != math.prod(shape):
        raise ModelError(f"the constant {name!r} has {values.size} elements, where its shape is {list(shape)}")
    return values.reshape(shape)
