from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from pipeline.demo import digits
from tools import digits_network as network


@pytest.fixture(scope="module")
def model(digits_onnx: Path) -> onnx.ModelProto:
    return onnx.load(digits_onnx)


def weights(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_the_shipped_file_is_small_and_what_the_table_describes(model: onnx.ModelProto, tmp_path: Path) -> None:
    network.save(weights(model), tmp_path / "again.onnx")
    assert digits.FILE.read_bytes() == (tmp_path / "again.onnx").read_bytes()
    assert digits.FILE.stat().st_size < 1.2e6


def test_names_that_users_cut_by(model: onnx.ModelProto) -> None:
    names = [node.name for node in model.graph.node]
    assert names == [operator.name for operator in network.operators()]
    assert {"stem.conv1", "widen1.pool", "block2.add", "block3.relu2", "head.dense"} <= set(names)
    assert [node.output[0] for node in model.graph.node] == [*names[:-1], "logits"]


def test_batch_norms_are_left_for_the_reader_to_fold(model: onnx.ModelProto) -> None:
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("BatchNormalization") == kinds.count("Conv") == 10
    assert all(np.all(value > 0) for name, value in weights(model).items() if name.endswith(".variance"))


def test_input_output_and_opset(model: onnx.ModelProto) -> None:
    shapes = [
        (value.name, [dimension.dim_value for dimension in value.type.tensor_type.shape.dim])
        for value in (*model.graph.input, *model.graph.output)
    ]
    assert shapes == [("image", [1, 1, 32, 32]), ("logits", [1, 10])]
    assert model.opset_import[0].version == network.OPSET


def test_the_two_halves_are_about_equal_work() -> None:
    assert 55e6 < network.flops() < 65e6


def test_98_percent_of_the_held_out_images_are_right() -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(digits.FILE, options, providers=["CPUExecutionProvider"])
    images, labels = digits.held_out()
    logits = np.concatenate([session.run(["logits"], {"image": image})[0] for image in images])
    assert np.mean(logits.argmax(1) == labels) >= 0.98
