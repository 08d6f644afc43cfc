"""Small models with metadata, as programs that export models write it."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

PICTURE = (1, 3, 8, 8)


def onnx_model(path: Path, metadata: Mapping[str, str] | None = None, classes: int = 2) -> Path:
    """Write a classifier of pictures with properties."""
    from onnx import TensorProto, helper, numpy_helper, save

    weights = np.random.default_rng(0).standard_normal((3, classes)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["image"], ["mean"]),
            helper.make_node("Flatten", ["mean"], ["features"]),
            helper.make_node("MatMul", ["features", "weights"], ["scores"]),
        ],
        "classifier",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, PICTURE)],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, (1, classes))],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, dict(metadata or {}))
    save(model, path)
    return path


def tflite_model(path: Path, metadata: bytes = b"", dtype: str = "FLOAT32") -> Path:
    """Write a TFLite model of one addition, with a table of metadata."""
    import flatbuffers
    import tflite

    builder = flatbuffers.Builder(1024)
    buffers = [_table(builder, {}), _table(builder, {0: ("offset", builder.CreateByteVector(metadata))})]
    name, image, scores = map(builder.CreateString, ("TFLITE_METADATA", "image", "scores"))
    shape = _int_vector(builder, PICTURE)
    kind = getattr(tflite.TensorType, dtype)
    tensors = [
        _table(builder, {0: ("offset", shape), 1: ("byte", kind), 2: ("uint", 0), 3: ("offset", tensor)})
        for tensor in (image, scores)
    ]
    reads, makes = _int_vector(builder, [0, 0]), _int_vector(builder, [1])
    operator = _table(builder, {1: ("offset", reads), 2: ("offset", makes)})
    tensors_vector, operators = _vector(builder, tensors), _vector(builder, [operator])
    inputs = _int_vector(builder, [0])
    outputs = _int_vector(builder, [1])
    fields = {0: tensors_vector, 1: inputs, 2: outputs, 3: operators}
    subgraph = _table(builder, {number: ("offset", offset) for number, offset in fields.items()})
    add = tflite.BuiltinOperator.ADD
    code = _table(builder, {0: ("byte", add), 2: ("int", 1), 3: ("int", add)})
    entry = _table(builder, {0: ("offset", name), 1: ("uint", 1)})
    vectors = {
        1: _vector(builder, [code]), 2: _vector(builder, [subgraph]), 4: _vector(builder, buffers),
        6: _vector(builder, [entry] if metadata else []),
    }  # fmt: skip
    fields_of_model = {number: ("offset", offset) for number, offset in vectors.items()}
    builder.Finish(_table(builder, {0: ("int", 3), **fields_of_model}), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path


def tflite_metadata(mean: Sequence[float], std: Sequence[float], labels: str) -> bytes:
    """Return a table of metadata: normalisation of RGB pictures, and a file of labels."""
    import flatbuffers

    builder = flatbuffers.Builder(256)
    file_name, locale = builder.CreateString(labels), builder.CreateString("de")
    translation = builder.CreateString("de.txt")
    numbers = [_float_vector(builder, values) for values in (mean, std)]
    options = _table(builder, {0: ("offset", numbers[0]), 1: ("offset", numbers[1])})
    unit = _table(builder, {0: ("byte", 1), 1: ("offset", options)})
    image = _table(builder, {0: ("byte", 1)})
    content = _table(builder, {0: ("byte", 2), 1: ("offset", image)})
    units = _vector(builder, [unit])
    source = _table(builder, {3: ("offset", content), 4: ("offset", units)})
    files = _vector(builder, [
        _table(builder, {0: ("offset", translation), 2: ("byte", 2), 3: ("offset", locale)}),
        _table(builder, {0: ("offset", file_name), 2: ("byte", 2)}),
    ])  # fmt: skip
    result = _table(builder, {6: ("offset", files)})
    ends = [_vector(builder, [table]) for table in (source, result)]
    subgraph = _table(builder, {2: ("offset", ends[0]), 3: ("offset", ends[1])})
    subgraphs = _vector(builder, [subgraph])
    builder.Finish(_table(builder, {3: ("offset", subgraphs)}), b"M001")
    return bytes(builder.Output())


def append(path: Path, files: Mapping[str, str]) -> Path:
    """Append an archive of text files, as TFLite's metadata has."""
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def _table(builder: object, fields: Mapping[int, tuple[str, int]]) -> int:
    from flatbuffers import Builder

    assert isinstance(builder, Builder)
    builder.StartObject(max(fields, default=0) + 1)
    for number, (kind, value) in fields.items():
        if kind == "offset":
            builder.PrependUOffsetTRelativeSlot(number, value, 0)
        elif kind == "byte":
            builder.PrependInt8Slot(number, value, -1)
        elif kind == "uint":
            builder.PrependUint32Slot(number, value, 1 << 31)
        else:
            builder.PrependInt32Slot(number, value, -1)
    return int(builder.EndObject())


def _vector(builder: object, offsets: Sequence[int]) -> int:
    from flatbuffers import Builder

    assert isinstance(builder, Builder)
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _int_vector(builder: object, values: Sequence[int]) -> int:
    from flatbuffers import Builder

    assert isinstance(builder, Builder)
    return int(builder.CreateNumpyVector(np.array(values, np.int32)))


def _float_vector(builder: object, values: Sequence[float]) -> int:
    from flatbuffers import Builder

    assert isinstance(builder, Builder)
    return int(builder.CreateNumpyVector(np.array(values, np.float32)))


def same_size(source: Path, path: Path) -> Path:
    """Write a model from pictures to pictures, with the properties of another model."""
    import onnx
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, PICTURE) for name in ("image", "scores")]
    graph = helper.make_graph([helper.make_node("Relu", ["image"], ["scores"])], "same", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.metadata_props.extend(onnx.load(source).metadata_props)
    onnx.save(model, path)
    return path
