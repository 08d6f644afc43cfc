"""Files whose operators wait for each other end in one clear error, in every format."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline.errors import ModelError
from pipeline.frontends.grouping import Links, sort_topologically
from tests.support.onnx_models import node, save
from tests.support.relay_programs import HEADER
from tests.support.time_limits import time_limit


def onnx_circle(folder: Path) -> Path:
    nodes = [node("Add", "x b", "y"), node("Add", "y x", "b")]
    return save(folder / "m.onnx", nodes, {"x": (4,), "y": (4,)}, ["y"])


def tflite_circle(folder: Path) -> Path:
    return write_tflite(folder, lambda x, a, b: [("ADD", [x, b], [a]), ("ADD", [a, x], [b])])


def tflite_loop(folder: Path) -> Path:
    return write_tflite(folder, lambda x, _, b: [("ADD", [x, b], [b])])


def write_tflite(folder: Path, operators: Callable[[int, int, int], list[Any]]) -> Path:
    pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    from tflite_writer import TfliteWriter

    writer = TfliteWriter()
    x, a, b = writer.input((1, 4)), writer.tensor((1, 4)), writer.tensor((1, 4))
    for kind, reads, makes in operators(x, a, b):
        writer.add(kind, reads, makes, options="AddOptions")
    (folder / "m.tflite").write_bytes(writer.content(b))
    return folder / "m.tflite"


def relay_functions(folder: Path) -> Path:
    kind = "Tensor[(4), float32]"
    pairs = (("main", "f"), ("f", "main"))
    functions = [f"def @{name}(%a: {kind}) -> {kind} {{ @{other}(%a) }}" for name, other in pairs]
    (folder / "m.relay").write_text(HEADER + "\n".join(functions))
    return folder / "m.relay"


def relay_values(folder: Path) -> Path:
    body = "%0 = add(%a, %1);\n %1 = add(%0, %a);\n %1"
    (folder / "m.relay").write_text(f"{HEADER}def @main(%a: Tensor[(4), float32]) {{ {body} }}")
    return folder / "m.relay"


def relax_circle(folder: Path) -> Path:
    import tvm
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    document = json.loads(tvm.ir.save_json(builder.get()))
    calls = [number for number, item in enumerate(document["nodes"]) if item["type"] == "ir.Call"]
    operands = document["nodes"][calls[0]]["data"]["args"]
    document["nodes"][operands]["data"][0] = calls[0]
    (folder / "m.json").write_text(json.dumps(document))
    return folder / "m.json"


def torch_circle(folder: Path) -> Path:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from tests.support.torch_models import Plain

    program = torch.export.export(Plain(lambda _, x: (x + 1) * 2), (torch.zeros(4),))
    torch.export.save(program, folder / "good.pt2")
    with zipfile.ZipFile(folder / "good.pt2") as source, zipfile.ZipFile(folder / "m.pt2", "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("models/model.json"):
                document = json.loads(content)
                nodes = document["graph_module"]["graph"]["nodes"]
                nodes[0]["inputs"][0]["arg"]["as_tensor"]["name"] = nodes[1]["outputs"][0]["as_tensor"]["name"]
                content = json.dumps(document).encode()
            target.writestr(name, content)
    return folder / "m.pt2"


CIRCLES: dict[Callable[[Path], Path], str] = {
    onnx_circle: "topologically sorted",
    tflite_circle: "reads 't2' before an operator makes it",
    tflite_loop: "reads 't2' before an operator makes it",
    relay_functions: "without end",
    relay_values: "%1",
    relax_circle: "node",
    torch_circle: "cannot read this exported program: .*'mul'",
}


@pytest.mark.parametrize("write", CIRCLES, ids=lambda write: write.__name__)
def test_a_circle_is_refused(tmp_path: Path, write: Callable[[Path], Path], caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path)
    with time_limit(20), pytest.raises(ModelError, match=CIRCLES[write]) as caught:
        pipeline.read(path)
    assert path.name in str(caught.value)
    assert not [record for record in caplog.records if record.exc_info]


def test_the_order_of_what_reads_itself_ends() -> None:
    nodes = [Links(("x", "c"), ("a",)), Links(("a",), ("b",)), Links(("b",), ("c",))]
    with time_limit(10), pytest.raises(ModelError, match="read each other's results"):
        list(sort_topologically(nodes))
    nodes[0] = Links(("x",), ("a",))
    assert list(sort_topologically(nodes[::-1])) == [2, 1, 0]
