"""Ends of a TFLite model without a fixed shape, text, and quantisation by blocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
schema = pytest.importorskip("ai_edge_litert.schema_py_generated", reason="LiteRT is not installed")
from tflite_writer import TfliteWriter  # noqa: E402

import pipeline  # noqa: E402
from pipeline.errors import ModelError  # noqa: E402


def save(folder: Path, write: Callable[[TfliteWriter], int]) -> Path:
    writer = TfliteWriter()
    return writer.save(folder / "m.tflite", write(writer))


def text(writer: TfliteWriter, tensor: int) -> int:
    writer.graph.tensors[tensor].type = schema.TensorType.STRING
    return tensor


def positives(writer: TfliteWriter) -> int:
    x, flags, places = writer.input((6,)), writer.tensor((6,), "bool"), writer.tensor((1, 1), "int64")
    writer.graph.tensors[places].shapeSignature = [-1, 1]
    writer.add("GREATER", [x, writer.constant(np.float32(0))], [flags])
    writer.add("WHERE", [flags], [places])
    return places


def words(writer: TfliteWriter) -> int:
    x, y = text(writer, writer.input((3,))), text(writer, writer.tensor((2,)))
    writer.add("GATHER", [x, writer.constant(np.array([2, 0], np.int32))], [y], options="GatherOptions")
    return y


def run(path: Path, *frames: Any) -> list[Any]:
    graph = pipeline.read(path)
    with pipeline.load(pipeline.build(graph, pipeline.plan(graph, stages=1))) as running:
        return [running.submit(frame).result(60).tolist() for frame in frames]


def test_an_output_whose_shape_depends_on_values(tmp_path: Path) -> None:
    path = save(tmp_path, positives)
    (note,) = pipeline.read(path).notes
    assert note.startswith("output 't2' has a shape that depends on values; frames carry it as at most")
    few, none = np.array([1, -1, 2, 0, 3, -4], np.float32), np.zeros(6, np.float32)
    assert run(path, few, none) == [[[0], [2], [4]], []]


def test_a_constant_without_elements(tmp_path: Path) -> None:
    """It is the shape of a scalar, of which converters make a condition."""
    writer = TfliteWriter()
    x, scalar, y = text(writer, writer.input((1,))), text(writer, writer.tensor(())), text(writer, writer.tensor((1,)))
    writer.add("RESHAPE", [x, writer.constant(np.zeros(0, np.int32))], [scalar], options="ReshapeOptions")
    writer.add("RESHAPE", [scalar, writer.constant(np.array([1], np.int32))], [y], options="ReshapeOptions")
    assert run(writer.save(tmp_path / "m.tflite", y), np.array(["seven"], object)) == [["seven"]]


def test_text_goes_in_and_comes_out(tmp_path: Path) -> None:
    path = save(tmp_path, words)
    assert [note.split(";")[0] for note in pipeline.read(path).notes] == [
        "input 't0' holds strings",
        "output 't1' holds strings",
    ]
    assert run(path, np.array(["a", "bc", "\u00e4"]), np.array(["", "b", "c"], object)) == [["\u00e4", "a"], ["c", ""]]


@pytest.mark.parametrize(("write", "why"), [(positives, "depends on values"), (words, "holds strings")])
def test_it_is_refused_without_the_fallback(tmp_path: Path, write: Any, why: str) -> None:
    with pytest.raises(ModelError, match=rf"{why}, which only LiteRT takes; allow the fallback"):
        pipeline.read(save(tmp_path, write), fallback=False)


def in_blocks(kind: str, **fields: int) -> Callable[[TfliteWriter], int]:
    """Write an operator that reads weights with a scale for each 32 of them."""

    def write(writer: TfliteWriter) -> int:
        x = writer.input((1, 64))
        weights, scales = writer.constant(np.ones((8, 64), np.int8)), writer.constant(np.ones((8, 2), np.float16))
        blocks = schema.BlockwiseQuantizationT()
        blocks.scales, blocks.blockSize, blocks.zeroPoints = scales, 32, -1
        vars(blocks).update(fields)
        quantization = schema.QuantizationParametersT()
        quantization.detailsType, quantization.details = schema.QuantizationDetails.BlockwiseQuantization, blocks
        writer.graph.tensors[weights].quantization = quantization
        if kind == "FULLY_CONNECTED":
            y = writer.tensor((1, 8))
            writer.add(kind, [x, weights, -1], [y], version=12, options="FullyConnectedOptions")
            return y
        y, z = writer.tensor((8, 64)), writer.tensor((8, 64))
        writer.add(kind, [weights], [y], version=5)
        writer.add("ADD", [y, x], [z], options="AddOptions")
        return z

    return write


def test_weights_that_are_quantised_by_blocks_are_litert_s(tmp_path: Path) -> None:
    path = save(tmp_path, in_blocks("FULLY_CONNECTED"))
    assert len(pipeline.read(path).islands) == 1


@pytest.mark.parametrize("fields", [{"scales": 99}, {"scales": -1}, {"zeroPoints": 99}])
def test_blocks_without_scales_are_refused(tmp_path: Path, fields: dict[str, int]) -> None:
    with pytest.raises(ModelError, match="the blocks of 't1' have no scales"):
        pipeline.read(save(tmp_path, in_blocks("FULLY_CONNECTED", **fields)))


def test_what_litert_dies_of_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"DEQUANTIZE .* reads 't1', which is quantised by blocks"):
        pipeline.read(save(tmp_path, in_blocks("DEQUANTIZE")))
