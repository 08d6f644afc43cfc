"""``soc-pipeline convert`` keeps a model, with all its names, in a file that can be read again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm

import pipeline
from pipeline import cli

PROGRAM = """#[version = "0.0.5"]
def @main(%x: Tensor[(1, 4, 8, 8), float32], %w: Tensor[(6, 4, 3, 3), float32], %b: Tensor[(6), float32]) {
  let %conv = nn.conv2d(%x, %w, padding=[1, 1, 1, 1]);
  %0 = nn.bias_add(%conv, %b);
  %1 = nn.relu(%0);
  %2 = nn.max_pool2d(%1, pool_size=[2, 2], strides=[2, 2]);
  %3 = split(%2, indices_or_sections=2, axis=1);
  let %half = %3.0;
  (nn.softmax(%half, axis=1), %3.1)
}"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    np.savez(
        tmp_path / "m.npz",
        w=generator.standard_normal((6, 4, 3, 3)).astype(np.float32),
        b=generator.standard_normal(6).astype(np.float32),
    )
    (tmp_path / "m.relay").write_text(PROGRAM)
    return tmp_path / "m.relay"


def test_the_graph_is_the_same(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = program.parent
    target = folder / "kept.relax"
    assert cli.main(["convert", str(program), "--params", str(folder / "m.npz"), "-o", str(target)]) == 0
    assert capsys.readouterr().out.strip() == f"Relax module: {target}"
    original, restored = pipeline.read(program, params=folder / "m.npz"), pipeline.read(target)
    assert restored.digest == original.digest
    assert restored.name == original.name
    assert restored.outputs == original.outputs
    assert restored.aliases == original.aliases
    for cut in ("conv", "%0", "%1", "%2", "half"):
        assert pipeline.plan(restored, cuts=[cut]).stages == pipeline.plan(original, cuts=[cut]).stages
    assert (outputs(original)[0] == outputs(restored)[0]).all()


def outputs(graph: pipeline.Graph) -> list[np.ndarray]:
    frame = {"x": np.random.default_rng(1).standard_normal((1, 4, 8, 8)).astype(np.float32)}
    with pipeline.load(pipeline.build(graph, pipeline.plan(graph, stages=1))) as running:
        output = running.submit(frame).result()
    return list(output.values())


def test_tvm_reads_what_is_written(program: Path, tmp_path: Path) -> None:
    target = tmp_path / "kept"
    assert cli.main(["convert", str(program), "-o", str(target)]) == 0
    module = tvm.ir.load_json(target.read_text())
    assert [param.name for param in module["main"].params] == ["x", "w", "b"]
    tvm.relax.analysis.well_formed(module)


def test_a_module_of_tvm_itself(tmp_path: Path) -> None:
    builder = tvm.relax.BlockBuilder()
    x = tvm.relax.Var("x", tvm.relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit(tvm.relax.op.exp(x))
            result = builder.emit_output(tvm.relax.op.negative(first))
        builder.emit_func_output(result)
    (tmp_path / "m.json").write_text(tvm.ir.save_json(builder.get()))
    graph = pipeline.read(tmp_path / "m.json")
    assert [operator.kind for operator in graph.operators] == ["exp", "negative"]
    assert graph.name == "m"
    assert [spec.name for spec in graph.outputs] == [str(result.name)]


def test_there_is_no_folder_for_the_result(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["convert", str(program), "-o", str(program.parent / "nowhere" / "kept")]) == 1
    assert "there is no such folder" in capsys.readouterr().err
