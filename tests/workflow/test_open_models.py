"""One bundle for frames of several sizes: from the model to the results, in each of the ways."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import pipeline
from pipeline import cli
from pipeline.core.board.board import Board, Device
from pipeline.errors import BuildError, BundleError, InputError, ModelError, PlanError
from pipeline.executor.bundle import Bundle
from pipeline.split.symbolic_model import OpenModel
from tests.support.onnx_models import node, save, weights

pytestmark = pytest.mark.thorough

SHAPES: dict[str, list[int | str]] = {"data": ["N", 3, 16, 16]}
BATCHES = (1, 2, 8, 16, 32, 5)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with a skip, whose batch varies."""
    nodes = [
        node("Conv", "data w1 b1", "c1", "conv1", pads=[1, 1, 1, 1]),
        node("Relu", "c1", "r1", "relu1"),
        node("MaxPool", "r1", "p1", "pool1", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p1 w2", "c2", "conv2", pads=[1, 1, 1, 1]),
        node("Add", "c2 p1", "s2", "add2"),
        node("Relu", "s2", "r2", "relu2"),
        node("GlobalAveragePool", "r2", "g", "pool2"),
        node("Flatten", "g", "f", "flatten"),
        node("Gemm", "f w3 b3", "y", "dense"),
    ]
    constants = {
        "w1": weights(8, 3, 3, 3), "b1": weights(8), "w2": weights(8, 8, 3, 3), "w3": weights(8, 5), "b3": weights(5),
    }  # fmt: skip
    path = tmp_path_factory.mktemp("open") / "net.onnx"
    return save(path, nodes, {"data": ["N", 3, 16, 16]}, ["y"], constants)


@pytest.fixture(scope="module")
def model(file: Path) -> OpenModel:
    answer = pipeline.read(file, shapes=SHAPES)
    assert isinstance(answer, OpenModel)
    return answer


@pytest.fixture(scope="module")
def plan(model: OpenModel) -> pipeline.Plan:
    return pipeline.plan(model.at(N=16), stages=2)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SOC_PIPELINE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def batch(rows: int) -> np.ndarray:
    return weights(rows, 3, 16, 16)


def check(file: Path, results: Iterable[Any], sizes: Sequence[int] = BATCHES) -> None:
    """Compare with ONNX Runtime."""
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for rows, result in zip(sizes, results, strict=True):
        (expected,) = session.run(None, {"data": batch(rows)})
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_a_model_is_a_graph_at_each_size(model: OpenModel) -> None:
    for rows in (1, 7):
        graph = model.at(N=rows)
        assert graph.inputs[0].shape == (rows, 3, 16, 16)
        assert graph.outputs[0].shape == (rows, 5)
    assert model.at(N=2).digest == model.symbolic({"N": 2}).digest != model.at(N=3).digest


def test_each_size_has_a_build(file: Path, model: OpenModel, plan: pipeline.Plan, tmp_path: Path) -> None:
    """Batches of 16 and 32 in one bundle; parameters are written once for both."""
    bundle = pipeline.build(model, plan, sizes=[{"N": 32}, {"N": 16}, {"N": 1}])
    assert [build.inputs["data"][0] for build in bundle.builds] == [16, 32, 1]
    bundle.save(tmp_path / "net.bundle")
    single = pipeline.build(model.at(N=16), plan, check=False)
    single.save(tmp_path / "single.bundle")
    both_sizes, single_size = (sum(each.stat().st_size for each in (tmp_path / name).glob("*.parameters"))
                      for name in ("net.bundle", "single.bundle"))  # fmt: skip
    assert both_sizes < 2 * single_size
    with pipeline.load(tmp_path / "net.bundle") as running:
        check(file, running.map(map(batch, (1, 16, 32, 16))), (1, 16, 32, 16))
        with pytest.raises(InputError, match="no build for N=5: there are builds for N=16; N=32; N=1"):
            running.submit(batch(5))


def test_frames_are_padded(file: Path, model: OpenModel, plan: pipeline.Plan, tmp_path: Path) -> None:
    """The odd last batch: five rows in a build for eight."""
    pipeline.build(model, plan, sizes=[{"N": 8}, {"N": 32}], other_sizes="pad", check=False).save(
        tmp_path / "net.bundle"
    )
    with pipeline.load(tmp_path / "net.bundle") as running:
        check(file, running.map(map(batch, BATCHES)))


def test_one_build_takes_any_size(file: Path, model: OpenModel, plan: pipeline.Plan, tmp_path: Path) -> None:
    pipeline.build(model, plan, other_sizes="symbolic").save(tmp_path / "net.bundle")
    assert [build.symbolic for build in Bundle.load(tmp_path / "net.bundle").builds] == [False, True]
    with pipeline.load(tmp_path / "net.bundle") as running:
        check(file, running.map(map(batch, BATCHES)))


def test_new_sizes_are_compiled_once_and_kept(
    file: Path, model: OpenModel, plan: pipeline.Plan, tmp_path: Path, cache: Path
) -> None:
    pipeline.build(model, plan).save(tmp_path / "net.bundle")
    remainder: list[dict[str, int]] = []
    for _ in range(2):
        with pipeline.load(tmp_path / "net.bundle", on_new_shape="compile", model=file) as running:
            check(file, running.map(map(batch, (5, 16, 2, 5))), (5, 16, 2, 5))
        remainder.append({str(each): each.stat().st_mtime_ns for each in cache.glob("builds-*/*/manifest.json")})
    assert remainder[0] == remainder[1]
    assert len(remainder[0]) == 2


@pytest.mark.parametrize("part", ["stage0.so", "manifest.json"])
def test_a_kept_build_that_is_damaged_is_made_again(
    file: Path, model: OpenModel, plan: pipeline.Plan, cache: Path, part: str
) -> None:
    bundle = pipeline.build(model, plan, check=False)
    with pipeline.load(bundle, on_new_shape="compile", model=model) as running:
        running.submit(batch(2)).result(60)
    (remainder,) = cache.glob("builds-*/*")
    (remainder / part).unlink()
    with (
        pytest.warns(RuntimeWarning, match="made again"),
        pipeline.load(bundle, on_new_shape="compile", model=model) as running,
    ):
        check(file, running.map([batch(2)]), (2,))
    # Once, and not at every load: a folder without a manifest was never replaced.
    with pipeline.load(bundle, on_new_shape="compile", model=model) as running:
        check(file, running.map([batch(2)]), (2,))


def test_frames_whose_results_depend_on_padding_are_refused(tmp_path: Path) -> None:
    """Normalised over the batch, and convolved at the border: rows of zeros change the rows beside them."""
    mean = [node("ReduceMean", "data", "m", axes=[0], keepdims=1), node("Sub", "data m", "y", "centre")]
    over_batch = pipeline.read(save(tmp_path / "a.onnx", mean, {"data": ["N", 4]}, ["y"], opset=13), {"data": ["N", 4]})
    assert isinstance(over_batch, OpenModel)
    with pytest.raises(BuildError, match="cannot be padded: with zeros behind it, a frame of N=4"):
        pipeline.build(over_batch, pipeline.plan(over_batch.at(N=8)), other_sizes="pad")
    scale = [node("ReduceMax", "data", "m", axes=[2], keepdims=0), node("Relu", "m", "y", "relu")]
    over_width = pipeline.read(
        save(tmp_path / "b.onnx", scale, {"data": [2, 4, "W"]}, ["y"], opset=13), {"data": [2, 4, "W"]}
    )
    assert isinstance(over_width, OpenModel)
    with pytest.raises(BuildError, match="cannot be padded: with other values behind it"):
        pipeline.build(over_width, pipeline.plan(over_width.at(W=8)), other_sizes="pad")
    with pytest.raises(BuildError, match="no frame can be padded to N=1"):
        pipeline.build(over_batch, pipeline.plan(over_batch.at(N=1)), other_sizes="pad")


def test_heights_and_widths_vary(tmp_path: Path) -> None:
    nodes = [
        node("Conv", "data w1", "c1", "conv1", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", "c1", "r1", "relu1"),
        node("Conv", "r1 w2", "c2", "conv2", pads=[1, 1, 1, 1]),
        node("Sigmoid", "c2", "y", "sigmoid"),
    ]
    constants = {"w1": weights(4, 3, 3, 3), "w2": weights(2, 4, 3, 3)}
    shape: list[int | str] = [1, 3, "H", "W"]
    file = save(tmp_path / "seg.onnx", nodes, {"data": shape}, ["y"], constants)
    model = pipeline.read(file, {"data": shape})
    assert isinstance(model, OpenModel)
    plan = pipeline.plan(model.at(H=16, W=24), stages=2)
    bundle = pipeline.build(model, plan, sizes=[{"H": 24, "W": 16}], other_sizes="symbolic")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    with pipeline.load(bundle) as running:
        for size in ((16, 24), (24, 16), (17, 31), (32, 32)):
            image = weights(1, 3, *size)
            (expected,) = session.run(None, {"data": image})
            np.testing.assert_allclose(running.submit(image).result(60), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ({}, "the size does not what N is; give all of N"),
        ({"M": 3}, "no extent is called 'M'; there are N"),
        ({"N": 0}, "the extent N is 0; it must be a whole number of at least 1"),
        ({"N": 1.5}, "the extent N is 1.5"),
    ],
)
def test_sizes_that_are_none(model: OpenModel, size: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        model.at(size)


def test_wrong_uses(file: Path, model: OpenModel, plan: pipeline.Plan, tmp_path: Path) -> None:
    graph = model.at(N=16)
    with pytest.raises(ModelError, match="neither an extent nor a name"):
        pipeline.read(file, {"data": ["a b", 3, 16, 16]})
    with pytest.raises(ModelError, match="no model at"):
        pipeline.read(tmp_path / "none.onnx", SHAPES)
    with pytest.raises(ModelError, match="verified at a size"):
        pipeline.read(file, SHAPES, verify=True)
    with pytest.raises(ModelError, match="was read with fixed shapes"):
        pipeline.build(graph, plan, sizes=[{"N": 3}])
    with pytest.raises(ModelError, match="other_sizes is 'no'"):
        pipeline.build(model, plan, other_sizes="no")
    fixed = pipeline.build(graph, plan, check=False)
    with pytest.raises(ValueError, match="shapes that vary"):
        pipeline.load(fixed, on_new_shape="compile", model=file)
    bundle = pipeline.build(model, plan, check=False)
    npu = Device("npu", "vendor", target={"loader": "rknn", "compile": "touch {artifact}"})
    foreign_plan = pipeline.plan(graph, Board("b", (npu,)), devices=["npu"])
    with pytest.raises(ValueError, match=r"another size would run 'touch {artifact}', a command in the bundle's plan"):
        pipeline.load(Bundle(foreign_plan, [None], shapes=bundle.shapes), on_new_shape="compile", model=model)
    with pytest.raises(ValueError, match="needs the model"):
        pipeline.load(bundle, on_new_shape="compile")
    with pytest.raises(ValueError, match="must be 'refuse' or 'compile'"):
        pipeline.load(bundle, on_new_shape="yes")
    with pytest.raises(PlanError, match="several sizes"):
        bundle.with_stage(lambda x: x, inputs=["data"], outputs=["data"])
    rival = pipeline.read(save(tmp_path / "o.onnx", [node("Relu", "z", "y")], {"z": ["N"]}, ["y"]), {"z": ["N"]})
    with pytest.raises(PlanError, match="for another model"):
        pipeline.build(rival, plan)


def test_a_manifest_without_the_stages_of_a_size(model: OpenModel, plan: pipeline.Plan, tmp_path: Path) -> None:
    from pipeline.executor import manifest

    pipeline.build(model, plan, sizes=[{"N": 2}], check=False).save(tmp_path / "net.bundle")
    answer = manifest.read(tmp_path / "net.bundle")
    (tmp_path / "net.bundle" / answer.more[0].stages[0].library.file).unlink()  # type: ignore[union-attr]
    with pytest.raises(BundleError, match=r"stage0\.1\.so' is missing"):
        Bundle.load(tmp_path / "net.bundle")


def test_a_range_is_built_size_by_size(model: OpenModel, plan: pipeline.Plan, file: Path) -> None:
    bundle = pipeline.build(model, plan, sizes=[{"N": "1..2"}, {"N": range(2, 4)}], check=False)
    assert [build.inputs["data"][0] for build in bundle.builds] == [16, 1, 2, 3]
    with pipeline.load(bundle) as running:
        check(file, running.map(map(batch, (3, 1, 2))), (3, 1, 2))
    with pytest.raises(ModelError, match="the extent N is 0"):
        pipeline.build(model, plan, sizes=[{"N": "0..2"}])


def test_the_command_line(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def soc(*arguments: object) -> subprocess.CompletedProcess[str]:
        words = list(map(str, arguments))
        try:
            status = cli.main(words)
        except SystemExit as end:  # by argparse
            status = int(end.code or 0)
        return subprocess.CompletedProcess(words, status, *capsys.readouterr())

    bundle, shape = tmp_path / "net.bundle", "--shape=data=N,3,16,16"
    build_result = soc(
        "build",
        file,
        shape,
        "--size",
        "N=4",
        "--size=N=2",
        "--other-sizes=pad",
        "--verify",
        "--stages=2",
        "-o",
        bundle,
        "--json",
    )
    assert build_result.returncode == 0, build_result.stderr
    assert json.loads(build_result.stdout)["verification"]["reference"].startswith("ONNX Runtime")
    assert json.loads(build_result.stdout)["inputs"] == [{"data": [4, 3, 16, 16]}, {"data": [2, 3, 16, 16]}]
    for rows in (1, 3, 4):
        np.save(tmp_path / f"{rows}.npy", batch(rows))
    frames = [tmp_path / f"{rows}.npy" for rows in (1, 3, 4)]
    ran = soc("run", bundle, "--input", *frames, "--output", tmp_path / "results")
    assert ran.returncode == 0, ran.stderr
    check(file, (np.load(tmp_path / "results" / f"{rows}.npz")["y"] for rows in (1, 3, 4)), (1, 3, 4))
    for mistake, message in (
        (soc("inspect", file, shape), "give at least one size, such as --size N=16"),
        (soc("inspect", file, "--shape=data=1,3,16,16", "--size=N=1"), "--size gives extents for names in --shape"),
        (soc("inspect", file, shape, "--size=N=x"), "--size is 'N=x'; it must be NAME=EXTENT"),
        (soc("inspect", file, shape, "--size=M=2"), "no extent is called 'M'"),
        (soc("run", bundle, "--input", *frames, "--output", tmp_path / "r.npz"), "give a folder for one per frame"),
    ):
        assert (mistake.returncode, mistake.stdout) == (2, "")
        assert message in mistake.stderr
        assert "Traceback" not in mistake.stderr
    # What came before the frame that does not fit is kept.
    check(file, [np.load(tmp_path / "r.npz")["y"][0]], [1])
