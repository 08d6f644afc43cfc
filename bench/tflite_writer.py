"""Writer of TFLite files, operator by operator, by LiteRT's own schema."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

TYPES = {
    np.dtype(name).name: getattr(schema.TensorType, name.upper())
    for name in ("float16", "float32", "int8", "uint8", "int16", "int32", "int64", "bool")
}


class TfliteWriter:
    """A model that grows by operators; a tensor is its number."""

    def __init__(self) -> None:
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators, self.graph.inputs, self.graph.outputs = [], [], [], []
        self.model = schema.ModelT()
        self.model.version, self.model.subgraphs, self.model.operatorCodes = 3, [self.graph], []
        self.model.buffers = [schema.BufferT()]

    def tensor(
        self, shape: Sequence[int], dtype: str = "float32", scale: Any = None, zero: Any = 0, axis: int = 0
    ) -> int:
        """Add a tensor, quantised if it has a scale, or several along an axis."""
        tensor = schema.TensorT()
        tensor.name = f"t{len(self.graph.tensors)}"
        tensor.shape, tensor.type, tensor.buffer = list(shape), TYPES[dtype], 0
        if scale is not None:
            scales = np.atleast_1d(np.asarray(scale, np.float32))
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale = scales
            tensor.quantization.zeroPoint = np.broadcast_to(np.asarray(zero, np.int64), scales.shape)
            tensor.quantization.quantizedDimension = axis
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def input(self, *arguments: Any, **options: Any) -> int:
        """Add an input, as `tensor` does."""
        number = self.tensor(*arguments, **options)
        self.graph.inputs.append(number)
        return number

    def constant(self, values: Any, scale: Any = None, zero: Any = 0, axis: int = 0) -> int:
        """Add a constant."""
        array = np.asarray(values)
        number = self.tensor(array.shape, array.dtype.name, scale, zero, axis)
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(array.tobytes(), np.uint8)
        self.model.buffers.append(buffer)
        self.graph.tensors[number].buffer = len(self.model.buffers) - 1
        return number

    def add(self, kind: str, inputs: Sequence[int], outputs: Sequence[int], version: int = 1, **options: Any) -> None:
        """Add an operator; `options` are the fields of its options, with their class's name as ``options``."""
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, kind)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), version
        self.model.operatorCodes.append(code)
        operator = schema.OperatorT()
        operator.opcodeIndex = len(self.model.operatorCodes) - 1
        operator.inputs, operator.outputs = list(inputs), list(outputs)
        if name := options.pop("options", None):
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, name)
            operator.builtinOptions = getattr(schema, f"{name}T")()
            for key, value in options.items():
                if not hasattr(operator.builtinOptions, key):
                    raise AttributeError(f"{name} has no {key}")
                setattr(operator.builtinOptions, key, value)
        self.graph.operators.append(operator)

    def content(self, *outputs: int) -> bytes:
        """Return the file."""
        self.graph.outputs = list(outputs)
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def save(self, path: Path, *outputs: int) -> Path:
        """Write the file."""
        path.write_bytes(self.content(*outputs))
        return path
