"""Relax modules in memory and as JSON are read alike, and what calls code outside of them is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import pipeline
from pipeline import cli
from pipeline.errors import ModelError
from tests.support.relax_modules import NESTED, network, open_network, parse, save

PLAIN = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3), dtype="float32")):
        y = R.exp(x)
        return y
"""


def first_result(graph: pipeline.Graph, **frame: np.ndarray) -> np.ndarray:
    with pipeline.load(pipeline.build(graph, pipeline.plan(graph, stages=1))) as running:
        output = running.submit(frame).result()
    return np.asarray(next(iter(output.values())) if isinstance(output, dict) else output)


def run_by_tvm(module: Any, *frame: np.ndarray) -> np.ndarray:
    machine = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
    return np.asarray(machine["main"](*(tvm.runtime.tensor(each) for each in frame)).numpy())


def test_both_forms_are_one_graph(tmp_path: Path) -> None:
    module = network()
    graphs = [pipeline.read(each) for each in (module, save(tmp_path / "m.json", module))]
    assert len({graph.digest for graph in graphs}) == 1
    assert [operator.kind for operator in graphs[0].operators][:2] == ["conv2d", "split"]
    assert {"conv", "half", "shifted", "scaled", "result"} <= {*graphs[0].tensors, *graphs[0].aliases}
    assert [graph.name for graph in graphs] == ["model", "m"]


def test_the_file_computes_what_tvm_does(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    x, w = (generator.standard_normal(shape).astype(np.float32) / 4 for shape in ((1, 4, 8, 8), (6, 4, 3, 3)))
    graph = pipeline.read(save(tmp_path / "m.json", network()))
    reference = run_by_tvm(network(), x, w)
    np.testing.assert_allclose(first_result(graph, x=x, w=w), reference, rtol=1e-5, atol=1e-5)
    np.savez(tmp_path / "w.npz", w=w)
    for params in ({"w": w}, tmp_path / "w.npz"):
        operands = pipeline.read(network(), params=params)
        assert [spec.name for spec in operands.inputs] == ["x"]
        np.testing.assert_allclose(first_result(operands, x=x), reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"v": np.zeros(3, np.float32)}, r"none of the parameters given \(v\) is one of the module, which has x, w"),
        ({"w": np.zeros(3, np.float32)}, r"'w' has the shape \[6, 4, 3, 3\], which \[3\] does not fit"),
        ({"w": np.zeros((6, 4, 3, 3), np.int8)}, "parameter 'w' is int8, but the module has float32"),
    ],
)
def test_parameters_that_do_not_fit(params: Any, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        pipeline.read(network(), params=params)


def test_open_extents(tmp_path: Path) -> None:
    path = save(tmp_path / "m.json", open_network())
    graph = pipeline.read(path, {"x": (3, 4)})
    assert [spec.shape for spec in (*graph.inputs, *graph.outputs)] == [(3, 4), (6, 1), (6, 1)]
    batch = pipeline.read(path)
    assert batch.inputs[0].shape == (1, 4)
    assert batch.notes[0].endswith("leaves the batch open, which becomes 1; another one is given by --shape rows=8")
    with pytest.raises(ModelError, match=r"input 'x' has a fixed extent 4 where the shape \[3, 5\] has 5"):
        pipeline.read(path, {"x": (3, 5)})
    with pytest.raises(ModelError, match="has no input 'y'; it has x"):
        pipeline.read(path, {"y": (3, 4)})


def test_functions_are_inlined_and_the_entry_is_found() -> None:
    graph = pipeline.read(parse(NESTED))
    assert [operator.kind for operator in graph.operators] == ["exp", "add", "add"]
    assert [spec.name for spec in graph.inputs] == ["input", "w"]
    unit = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(first_result(graph, input=unit, w=unit), np.full((2, 3), np.e + 2), rtol=1e-6)


def test_functions_that_call_each_other_without_end() -> None:
    text = NESTED.replace("R.add(a, b)", "Module.inner(a, b)")
    with pytest.raises(ModelError, match="does not support recursive functions"):
        pipeline.read(parse(text))


def test_two_entries() -> None:
    with pytest.raises(ModelError, match="has no function 'main'; it has one, two"):
        pipeline.read(parse(two_entries()))


def two_entries() -> str:
    body = PLAIN.partition("    @R.function")[2]
    return PLAIN.replace("main", "one") + "    @R.function" + body.replace("main", "two")


def test_tvmscript_says_how_to_save_its_module(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(network().script(show_meta=True))
    with pytest.raises(ModelError, match=r"is TVMScript, .*; write tvm\.ir\.save_json\(module\) to a file"):
        pipeline.read(path)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path / "m.json", network())
    assert cli.main(["inspect", str(path)]) == 0
    assert "conv2d" in capsys.readouterr().out
    assert cli.main(["convert", str(path), "-o", str(tmp_path / "kept")]) == 0
    assert pipeline.read(tmp_path / "kept").digest == pipeline.read(path).digest
    path.write_text(PLAIN)
    assert cli.main(["inspect", str(path)]) == 2
    assert f"'{path}' is TVMScript" in capsys.readouterr().err


def test_a_kernel_in_memory_calls_nothing_outside() -> None:
    def outside(tensor: Any) -> Any:
        kernel_call = tvm.tirx.call_pure_extern("float32", "system", 0)
        return tvm.te.compute(tensor.shape, lambda *position: tensor(*position) + kernel_call, "outside")

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.call_te(outside, x))
        builder.emit_func_output(result)
    with pytest.raises(ModelError, match="the kernel 'outside' calls call_pure_extern, which is not supported"):
        pipeline.read(builder.get())


def test_a_kernel_may_choose() -> None:
    def halves(tensor: Any) -> Any:
        return tvm.te.compute(
            tensor.shape, lambda row, column: tvm.tirx.if_then_else(column < 2, tensor(row, column), 0.0), "halves"
        )

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.call_te(halves, x))
        builder.emit_func_output(result)
    assert [operator.kind for operator in pipeline.read(builder.get()).operators] == ["halves"]


def test_foreign_operators_are_named_at_once() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        first = builder.emit(relax.op.call_pure_packed("f", x, ty_args=x.ty), name_hint="a")
        second = builder.emit(relax.op.call_dps_packed("g", first, out_ty=x.ty), name_hint="b")
        builder.emit_func_output(second)
    with pytest.raises(ModelError, match=r"call_pure_packed \(that makes 'a'\); call_dps_packed \(that makes 'b'\)"):
        pipeline.read(builder.get())


def test_json_that_is_no_module(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(tvm.ir.save_json(tvm.runtime.convert([1, 2])))
    with pytest.raises(ModelError, match="holds no module, but a "):
        pipeline.read(tmp_path / "m.json")
