"""Relax modules in memory, as text and as JSON are read alike, and a text that would do anything else is refused."""

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
from tests.support.relax_modules import NESTED, network, open_network

PLAIN = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3), dtype="float32")):
        y = R.exp(x)
        return y
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "m.py"
    path.write_text(text)
    return path


def first_result(graph: pipeline.Graph, **frame: np.ndarray) -> np.ndarray:
    with pipeline.load(pipeline.build(graph, pipeline.plan(graph, stages=1))) as running:
        output = running.submit(frame).result()
    return np.asarray(next(iter(output.values())) if isinstance(output, dict) else output)


def run_by_tvm(module: Any, *frame: np.ndarray) -> np.ndarray:
    machine = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
    return np.asarray(machine["main"](*(tvm.runtime.tensor(each) for each in frame)).numpy())


def test_all_three_forms_are_one_graph(tmp_path: Path) -> None:
    module = network()
    text = write(tmp_path, module.script(show_meta=True))
    (tmp_path / "m.json").write_text(tvm.ir.save_json(module))
    graphs = [pipeline.read(each) for each in (module, text, tmp_path / "m.json")]
    assert len({graph.digest for graph in graphs}) == 1
    assert [operator.kind for operator in graphs[0].operators][:2] == ["conv2d", "split"]
    assert {"conv", "half", "shifted", "scaled", "result"} <= {*graphs[0].tensors, *graphs[0].aliases}
    assert [graph.name for graph in graphs] == ["model", "m", "m"]


def test_the_text_computes_what_tvm_does(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    x, w = (generator.standard_normal(shape).astype(np.float32) / 4 for shape in ((1, 4, 8, 8), (6, 4, 3, 3)))
    graph = pipeline.read(write(tmp_path, network().script(show_meta=True)))
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
    path = write(tmp_path, open_network().script())
    graph = pipeline.read(path, {"x": (3, 4)})
    assert [spec.shape for spec in (*graph.inputs, *graph.outputs)] == [(3, 4), (6, 1), (6, 1)]
    batch = pipeline.read(path)
    assert batch.inputs[0].shape == (1, 4)
    assert batch.notes[0].endswith("leaves the batch open, which becomes 1; another one is given by --shape rows=8")
    with pytest.raises(ModelError, match=r"input 'x' has a fixed extent 4 where the shape \[3, 5\] has 5"):
        pipeline.read(path, {"x": (3, 5)})
    with pytest.raises(ModelError, match="has no input 'y'; it has x"):
        pipeline.read(path, {"y": (3, 4)})


def test_functions_are_inlined_and_the_entry_is_found(tmp_path: Path) -> None:
    graph = pipeline.read(write(tmp_path, NESTED))
    assert [operator.kind for operator in graph.operators] == ["exp", "add", "add"]
    assert [spec.name for spec in graph.inputs] == ["input", "w"]
    unit = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(first_result(graph, input=unit, w=unit), np.full((2, 3), np.e + 2), rtol=1e-6)


def test_functions_that_call_each_other_without_end(tmp_path: Path) -> None:
    text = NESTED.replace("R.add(a, b)", "Module.inner(a, b)")
    with pytest.raises(ModelError, match="does not support recursive functions"):
        pipeline.read(write(tmp_path, text))


def test_two_entries(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no function 'main'; it has one, two"):
        pipeline.read(write(tmp_path, two_entries()))


def two_entries() -> str:
    body = PLAIN.partition("    @R.function")[2]
    return PLAIN.replace("main", "one") + "    @R.function" + body.replace("main", "two")


def test_constants_that_are_not_in_the_text(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"its constants are not in the text; print it with .*show_meta=True"):
        pipeline.read(write(tmp_path, network().script()))


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, network().script(show_meta=True))
    assert cli.main(["inspect", str(path)]) == 0
    assert "conv2d" in capsys.readouterr().out
    assert cli.main(["convert", str(path), "-o", str(tmp_path / "kept")]) == 0
    assert pipeline.read(tmp_path / "kept").digest == pipeline.read(path).digest
    assert cli.main(["inspect", str(write(tmp_path, PLAIN.replace("R.exp(x)", "open('x')")))]) == 2
    assert f"'{path}' cannot be read: line 6: calling 'open' is not allowed" in capsys.readouterr().err


# Each would leave a file behind if anything of it were executed.
CALL = "__import__('pathlib').Path({trap!r}).touch()"
# fmt: off
ATTACKS = [
    ("import os", "'import os' is not allowed"),
    ("from os import path", "'from os import path' is not allowed"),
    ("from tvm.script import ir as I\n{call}", "is not allowed in TVMScript"),
    ("n = {call}", "is not allowed in TVMScript"),
    ("metadata = tvm.ir.load_json({call})", "is not allowed in TVMScript"),
    ("def f():\n    {call}", "is not allowed in TVMScript"),
    ("if {call}:\n    pass", "is not allowed in TVMScript"),
]
EXPRESSIONS = [
    "{call}", "eval({quoted})", "R.exp({call})", "R.exp(x, {call})", "R.exp(x=({call},))", "[{call}]", "{{1: {call}}}",
    "R.parser.ast.sys.exit()", "R.dist", "R.builder.ir._relax", "R.exp.__globals__",
    "T.parser.utils.inspect.os.getcwd()",
    "R.exp.__call__(x)", "x.__class__", "x.show()", "x.script()", "().__class__", "(lambda: {call})()",
    "lambda: {call}",
    "[{call} for i in (1,)]", "({call} for i in (1,))", "{{{call} for i in (1,)}}", "f'{{{call}}}'", "(y := {call})",
    "{call} if True else x", "x if {call} else x", "R.exp(*[x])", "R.exp(**{{}})", "R.Tuple(exit)",
    "R.Tuple(breakpoint)",
    "R.Callable([input])", "exit", "R", "T", "I", "cls", "Module", "R.zeros(({quoted},), 'float32')",
    "R.zeros(R.shape([{quoted}]), 'float32')", "2 ** 2 ** 99", "1 << 99999999999", "(0,) * 9999999999",
    "'a' * 9999999999",
    "R.zeros(('9**9**9**9',), 'float32')", "999999999999999999999999", "R.split(x, 999999999)",
    "R.call_packed('exec', x)",
    "R.macro(x)", "R.emit_te(x)", "T.jit(x)", "T.external_kernel(x)", "T.import_source(x)",
    "T.call_extern('int32', 'system')",
    "R.call_py_func('f', x)", "I.pyfunc(x)", "I.Range(x)", "x is None", "x in (x,)", "b'bytes'", "1j", "...",
]
STATEMENTS = [
    "import os", "from os import path", "del x", "global x", "nonlocal x", "raise x", "assert {call}", "pass",
    "while {call}:\n            pass", "for i in ({call},):\n            pass",
    "for i in T.serial({call}):\n            pass",
    "with open('x') as f:\n            pass", "with R.dataflow(), {call}:\n            pass",
    "try:\n            {call}\n        finally:\n            pass", "def f():\n            {call}",
    "class f:\n            {call}", "x.y = x", "x += {call}", "x[{call}] = x", "R = x", "cls = x", "metadata = x",
    "__builtins__ = x", "a, R = x", "a: {call} = x", "async def f():\n            pass", "return {call}", "x",
    "match x:\n            case _:\n                {call}",
]
HEADS = [
    ("@I.ir_module", "@I.ir_module\n@print"), ("@I.ir_module", "@I.ir_module({call})"), ("@I.ir_module",
    "@print\n@I.ir_module"),
    ("class Module:", "class Module({call}):"), ("class Module:", "class Module(metaclass={call}):"),
    ("class Module:", "class Module:\n    {call}"), ("class Module:",
    "class Module:\n    I.module_attrs({{'a': {call}}})"),
    ("class Module:", "class Module:\n    x = {call}"), ("@R.function", "@R.function({call})"), ("@R.function",
    "@R.function\n    @print"),
    ("@R.function", "@R.macro"), ("@R.function", "@I.pyfunc"), ("x: R.", "x={call}, y: R."), ("x: R.", "*x: R."),
    ("x: R.", "**x: R."),
    ("x: R.", "*, x: R."), ("x: R.", "y: {call}, x: R."), ("x: R.", "y: {quoted}, x: R."), ("):\n",
    ") -> {call}:\n"), ("(2, 3)", "({quoted}, 3)"),
    ('"float32"', "{quoted}"), ("main(x", "main(R"),
]
# fmt: on


def attacks() -> list[str]:
    """Return texts in which ``{call}`` stands for code, and ``{quoted}`` for its text."""
    output = [f"{attack}\n{PLAIN}" for attack, _ in ATTACKS]
    output += [PLAIN.replace("R.exp(x)", each) for each in EXPRESSIONS]
    output += [PLAIN.replace("y = R.exp(x)", f"{each}\n        y = R.exp(x)") for each in STATEMENTS]
    return output + [PLAIN.replace(*each, 1) for each in HEADS]


@pytest.mark.parametrize("attack", attacks())
def test_nothing_else_is_executed(tmp_path: Path, attack: str) -> None:
    trap = tmp_path / "trap"
    call = CALL.format(trap=str(trap))
    text = attack.format(call=call, quoted=repr(call))
    with pytest.raises(ModelError, match=r"cannot be read: line \d+: "):
        pipeline.read(write(tmp_path, text))
    assert not trap.exists()


@pytest.mark.parametrize(("attack", "reason"), ATTACKS)
def test_what_is_not_allowed_is_said(tmp_path: Path, attack: str, reason: str) -> None:
    text = attack.format(call=CALL.format(trap="x"), quoted="''")
    with pytest.raises(ModelError, match=r"m\.py' cannot be read: line \d+: .*" + reason):
        pipeline.read(write(tmp_path, f"{text}\n{PLAIN}"))


def test_the_attacked_text_itself_is_right(tmp_path: Path) -> None:
    assert [each.kind for each in pipeline.read(write(tmp_path, PLAIN)).operators] == ["exp"]


@pytest.mark.parametrize("call", ["T.call_extern('int32', 'system')", "T.call_packed('f')", "T.tvm_struct_set(1, 2)"])
def test_a_kernel_calls_nothing_outside(tmp_path: Path, call: str) -> None:
    text = network().script(show_meta=True).replace("T.exp(", f"T.exp({call} + ")
    with pytest.raises(ModelError, match="is not allowed"):
        pipeline.read(write(tmp_path, text))


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
