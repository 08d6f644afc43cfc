"""Files that are no ONNX models, or none that works: each gets one clear message."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pipeline
from pipeline.errors import MissingExtra, ModelError
from tests.support.onnx_models import IMAGE, LIGHT, check_outputs, node, save, weights


def read_refusal(path: Path | str, message: str, **options: Any) -> str:
    with pytest.raises(ModelError, match=message) as failure:
        pipeline.read(path, **options)
    text = str(failure.value)
    assert len(text.splitlines()) == 1, text
    assert failure.value.exit_status == 2
    return text


def test_a_missing_file(tmp_path: Path) -> None:
    assert "nowhere.onnx" in read_refusal(tmp_path / "nowhere.onnx", "no model at .*; give the path of an ONNX file")


def test_a_folder(tmp_path: Path) -> None:
    read_refusal(tmp_path, "is a folder")


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").touch()
    read_refusal(tmp_path / "empty.onnx", "is empty")


@pytest.mark.parametrize("text", ["hello\n", "# a readme\n" * 100, "{}", "\x08\x01"])
def test_a_text_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "text.onnx").write_text(text)
    read_refusal(tmp_path / "text.onnx", "is not a valid ONNX model")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file(tmp_path: Path, digits_onnx: Path, share: float) -> None:
    data = digits_onnx.read_bytes()
    (tmp_path / "half.onnx").write_bytes(data[: int(len(data) * share)])
    read_refusal(tmp_path / "half.onnx", "is not a valid ONNX model")


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Relu", "x", "y")], {"x": (2,)}, ["y"])
    path.chmod(0)
    if os.access(path, os.R_OK):
        # Root reads what is closed, but not the first addresses of a process, where nothing is mapped.
        path = Path("/proc/self/mem")
        if not path.exists():
            pytest.skip("this system has no file that root cannot read")
    read_refusal(path, "cannot read .*: (Permission denied|Input/output error)")


def test_all_unsupported_operators_are_named_at_once(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "x", "a"),
        node("Det", "a", "b", "determinant"),
        node("Det", "a", "b2"),
        helper.make_node("FusedThing", ["b"], ["y"], domain="com.example"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    message = read_refusal(tmp_path / "m.onnx", "uses operators that are not supported", fallback=False)
    assert "Det (node 'determinant')" in message
    assert "com.example.FusedThing (node 'y')" in message
    assert message.count("Det") == 1
    read_refusal(tmp_path / "m.onnx", r"neither TVM nor ONNX Runtime has: FusedThing \(y\)")


def test_what_tvm_cannot_import_names_the_node(tmp_path: Path) -> None:
    """TVM knows Mod, but not with a repetition that is known only when the model runs."""
    nodes = [node("Relu", "x", "r"), node("OneHot", "i depth values", "y", "coder")]
    path = save(
        tmp_path / "m.onnx", nodes, {"x": (2,), "i": (2,), "depth": (1,)}, ["y"], {"values": weights(2)},
        dtypes={"i": TensorProto.INT64, "depth": TensorProto.INT64},
    )  # fmt: skip
    read_refusal(path, r"TVM cannot import node 'coder' \(OneHot\)", fallback=False)


def test_an_old_opset(tmp_path: Path) -> None:
    check_outputs(save(tmp_path / "m.onnx", [node("Relu", "x", "y")], {"x": (2,)}, ["y"], opset=6))


def test_constants_of_an_old_file_that_are_no_inputs(tmp_path: Path) -> None:
    """Version 3 of the format wants them to be inputs, but ONNX Runtime does not."""
    nodes = [node("Reshape", "x shape", "y")]
    path = save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"], {"shape": np.array([3, 2])}, opset=5)
    model = onnx.load(path)
    model.ir_version = 3
    onnx.save(model, path)
    check_outputs(path)


def test_an_old_opset_that_cannot_be_converted(tmp_path: Path) -> None:
    """Up to opset 6 an attribute says which axis a summand belongs to, and the converter drops it."""
    nodes = [helper.make_node("Add", ["x", "b"], ["y"], broadcast=1, axis=1)]
    path = save(tmp_path / "m.onnx", nodes, {"x": (1, 3, 2, 2)}, ["y"], {"b": weights(3)}, opset=6)
    read_refusal(
        path, r"its opset is too old to be converted: Add broadcasts along an axis \(node 'y'\); export it again"
    )


def test_control_flow(tmp_path: Path) -> None:
    branches = [
        helper.make_graph(
            [helper.make_node(kind, ["x"], [f"{kind}out"])],
            kind,
            [],
            [helper.make_tensor_value_info(f"{kind}out", TensorProto.FLOAT, [2])],
        )
        for kind in ("Relu", "Neg")
    ]
    nodes = [helper.make_node("If", ["c"], ["y"], name="choice", then_branch=branches[0], else_branch=branches[1])]
    path = save(tmp_path / "m.onnx", nodes, {"x": (2,), "c": ()}, ["y"], dtypes={"c": TensorProto.BOOL})
    read_refusal(path, r"If \(node 'choice'\)", fallback=False)


def symbolic(path: Path) -> Path:
    nodes = [node("Conv", "x w", "c", pads=[1] * 4), node("Add", "c z", "y")]
    return save(path, nodes, {"x": ("batch", 4, "height", 6), "z": (1, 4, 6, 6)}, ["y"], {"w": weights(4, 4, 3, 3)})


def test_a_symbolic_shape_needs_extents(tmp_path: Path) -> None:
    message = read_refusal(symbolic(tmp_path / "m.onnx"), "input 'x' has the shape")
    assert "['batch', 4, 'height', 6]" in message
    assert message.endswith("--shape height=224")


def test_all_open_inputs_are_named_with_one_command(tmp_path: Path) -> None:
    """Some exporters write -1 for an extent that they do not know."""
    shapes: dict[str, tuple[int | str, ...]] = {"x": (-1, -1), "z": ("n", "m"), "k": (3,)}
    path = save(tmp_path / "m.onnx", [node("Add", "x z", "a"), node("Add", "a k", "y")], shapes, ["y"])
    message = read_refusal(
        path, r"input 'x' has the shape \['\?', '\?'\], 'z' has the shape \['n', 'm'\]; give it fixed"
    )
    assert message.endswith("--shape x=1,16 --shape m=16")
    assert pipeline.read(path, {"x": (1, 3), "m": 3}).inputs[1].shape == (1, 3)


@pytest.mark.parametrize("batch", ["batch", -1, 0, None, "?"], ids=str)
def test_an_open_batch_becomes_one(tmp_path: Path, batch: int | str | None) -> None:
    shapes: dict[str, tuple[Any, ...]] = {"x": (batch, 3), "k": (3,)}
    path = save(tmp_path / "m.onnx", [node("Add", "x k", "y")], shapes, ["y"])
    graph = pipeline.read(path)
    assert graph.inputs[0].shape == (1, 3)
    option = "batch=8" if batch == "batch" else "x=8,3"
    assert graph.notes == (
        f"{str(path)!r} leaves the batch open, which becomes 1; another one is given by --shape {option}",
    )
    name, _, extents = option.partition("=")
    again = pipeline.read(path, {name: [int(extent) for extent in extents.split(",")]})
    assert (again.inputs[0].shape, again.notes) == ((8, 3), ())


def test_a_model_names_its_extents(tmp_path: Path) -> None:
    path = symbolic(tmp_path / "m.onnx")
    assert pipeline.read(path, {"height": 6, "batch": 2}).inputs[0].shape == (2, 4, 6, 6)
    assert pipeline.read(path, {"height": 6}).inputs[0].shape == (1, 4, 6, 6)
    read_refusal(
        path, "has no input 'heigth'; it has x, z and the extents batch, height; did you", shapes={"heigth": 6}
    )


def test_initializers_that_are_no_inputs_in_an_old_file(tmp_path: Path) -> None:
    """IR version 3 wants them to be inputs as well; ONNX Runtime does not ask."""
    path = save(tmp_path / "m.onnx", [node("Add", "x k", "y")], {"x": (2, 3)}, ["y"], {"k": weights(3)}, opset=8)
    model = onnx.load(path)
    model.ir_version = 3
    onnx.save(model, path)
    check_outputs(path)


def test_a_symbolic_shape_with_extents(tmp_path: Path) -> None:
    graph = pipeline.read(symbolic(tmp_path / "m.onnx"), {"x": (2, 4, 6, 6)})
    assert graph.inputs[0].shape == (2, 4, 6, 6)
    assert graph.outputs[0].shape == (2, 4, 6, 6)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"xx": (1, 4, 6, 6)}, "has no input 'xx'; it has x, z and the extents batch, height; did you mean"),
        ({"x": (1, 4, 6)}, r"input 'x' has 4 dimensions, but the given shape \[1, 4, 6\] has 3"),
        ({"x": (1, 3, 6, 6)}, r"input 'x' has a fixed extent 4 where the shape \[1, 3, 6, 6\] has 3"),
        ({"x": (1, 4, -1, 6)}, r"input 'x': the shape \[1, 4, -1, 6\] has an extent below 0"),
    ],
    ids=str,
)
def test_wrong_extents(tmp_path: Path, shapes: dict[str, tuple[int, ...]], message: str) -> None:
    read_refusal(symbolic(tmp_path / "m.onnx"), message, shapes=shapes)


def test_an_input_of_unknown_rank(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Relu", "x", "y")], {"x": (2,)}, ["y"])
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    model.graph.output[0].type.tensor_type.shape.Clear()
    onnx.save(model, path)
    assert read_refusal(path, "input 'x' states no shape").endswith("such as --shape x=1,3,224,224")
    assert pipeline.read(path, {"x": (1, 3, 224, 224)}).outputs[0].shape == (1, 3, 224, 224)


def test_what_only_the_checker_refuses(tmp_path: Path) -> None:
    """ONNX Runtime sorts nodes, and needs no types of outputs."""
    path = save(tmp_path / "m.onnx", [node("Relu", "x", "a"), node("Exp", "a", "y")], {"x": (2, 3)}, ["y"])
    model = onnx.load(path)
    model.graph.node.insert(0, model.graph.node.pop())
    model.graph.output[0].ClearField("type")
    onnx.save(model, path)
    check_outputs(path)


def test_an_input_that_is_a_sequence(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("SequenceAt", ["s", "i"], ["y"])],
        "g",
        [
            helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    read_refusal(tmp_path / "m.onnx", "'s' is no tensor, but a sequence, which only ONNX Runtime takes", fallback=False)


def test_parameters_that_are_listed_as_inputs_are_parameters(tmp_path: Path) -> None:
    """As ONNX files had to before IR version 4."""
    path = save(tmp_path / "m.onnx", [node("Add", "x k", "y")], {"x": (2,), "k": (2,)}, ["y"], {"k": weights(2)})
    graph = check_outputs(path)
    assert [spec.name for spec in graph.inputs] == ["x"]


def test_a_path_as_text_and_the_model_s_name(tmp_path: Path) -> None:
    path = save(tmp_path / "my.model.onnx", [node("Relu", "x", "y")], IMAGE, ["y"])
    assert pipeline.read(str(path)).name == "my.model"


@pytest.mark.parametrize("name", ["squeezenet", "resnet50", "inception_v1"])
def test_real_models_keep_names(name: str) -> None:
    (path,) = [path for path in LIGHT if path.stem == f"light_{name}"]
    model, graph = onnx.load(path), pipeline.read(path)
    parameters = {tensor.name for tensor in model.graph.initializer}
    inputs = [each.name for each in model.graph.input if each.name not in parameters]
    assert [spec.name for spec in graph.inputs] == inputs
    assert [spec.name for spec in graph.outputs] == [each.name for each in model.graph.output]
    node_outputs = {name for each in model.graph.node for name in each.output}
    assert {name for name in graph.tensors if ":" not in name} <= node_outputs | set(inputs)
    assert {each.output[0] for each in model.graph.node if each.op_type in ("Relu", "Concat")} <= set(graph.tensors)


def test_without_the_extra_there_is_one_message(root: Path, digits_onnx: Path) -> None:
    code = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "onnx":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
import pipeline
try:
    pipeline.read({os.fspath(digits_onnx)!r})
except pipeline.errors.MissingExtra as error:
    print(error, error.exit_status)
"""
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False, timeout=100
    )
    reference = "reading ONNX models needs the 'onnx' extra; run: pip install 'onnx<1.24,>=1.19' 2\n"
    assert (process.returncode, process.stdout, process.stderr) == (0, reference, "")
    assert issubclass(MissingExtra, ImportError)


def test_experimental_operators_say_nothing_on_the_standard_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Onnx's checker warns of them there, among a command's results; ONNX Runtime has them."""
    nodes = [node("Affine", "x", "y", "old", alpha=1.5, beta=0.5)]
    path = save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"], opset=7)
    capfd.readouterr()
    assert pipeline.read(path).operators[-1].outputs == ("y",)
    assert capfd.readouterr().out == ""
    # Since opset 10 there is none of them any more.
    path = save(path, nodes, {"x": (2, 3)}, ["y"])
    read_refusal(path, "is not a valid ONNX model: it has experimental operators that ONNX Runtime does not take")
