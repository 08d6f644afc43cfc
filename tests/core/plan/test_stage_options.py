"""Stages of one plan that are built otherwise than the others."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.cli import main
from pipeline.core.plan.plan import Plan
from pipeline.core.plan.stage_options import StageOptions
from pipeline.errors import BuildError, PlanError
from pipeline.executor import host_target
from tests.support.onnx_models import by_onnxruntime, node, save, weights
from tests.support.small_plans import skip_plan

pytestmark = pytest.mark.thorough

x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="names an x86 processor")
IMAGE = np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype(np.float32)


def test_options_are_kept_in_the_plans_file(tmp_path: Path) -> None:
    plan = skip_plan().with_options("second", precision="bfloat16", weights="float16", target={"mattr": ["+neon"]})
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    assert plan.stage("second").options == StageOptions("bfloat16", "float16", None, {"mattr": ["+neon"]})
    assert plan.stage("first") == skip_plan().stage("first")


def test_plans_without_options_are_read(tmp_path: Path) -> None:
    """Files that were written before stages had any."""
    skip_plan().save(tmp_path / "plan.json")
    content = json.loads((tmp_path / "plan.json").read_text())
    for stage in content["stages"]:
        del stage["options"]
    (tmp_path / "plan.json").write_text(json.dumps(content))
    assert Plan.load(tmp_path / "plan.json") == skip_plan()


def test_one_stage_has_half_as_many_bytes_of_weights(small_onnx: Path) -> None:
    graph = pipeline.read(small_onnx)
    plan = pipeline.plan(graph, stages=2)
    stored = []
    for name in (None, "stage0", "stage1"):
        bundle = pipeline.build(graph, plan if name is None else plan.with_options(name, weights="float16"))
        stored.append([sum(each.nbytes for each in code.parameters.values()) for code in bundle.codes])
        with pipeline.load(bundle) as running:
            result = np.asarray(running.submit(IMAGE).result(60))
        expected = by_onnxruntime(small_onnx, {"x": IMAGE})["y"]
        np.testing.assert_allclose(result, expected, atol=5e-3 * float(np.abs(expected).max()))
    exact, first, second = stored
    assert first[0] < 0.6 * exact[0]
    assert second[1] < 0.6 * exact[1]
    assert (first[1], second[0]) == (exact[1], exact[0])


def test_one_stage_is_computed_by_winograds_transforms(tmp_path: Path) -> None:
    """Their weights have at least 16 values for the 9 of a kernel."""
    nodes = [node("Conv", "x w", "t", pads=[1] * 4), node("Conv", "t w", "y", pads=[1] * 4)]
    values = {"w": weights(32, 32, 3, 3) / 17}
    graph = pipeline.read(save(tmp_path / "model.onnx", nodes, {"x": (1, 32, 16, 16)}, ["y"], values))
    plan = pipeline.plan(graph, stages=2)
    direct, changed = (
        [sum(array.nbytes for array in code.parameters.values()) for code in bundle.codes]
        for variant in (plan, plan.with_options("stage1", precision="float32"))
        for bundle in [pipeline.build(graph, variant, precision="float32-exact")]
    )
    assert changed[0] == direct[0]
    assert changed[1] > 1.7 * direct[1]


def test_a_stage_that_differs_by_more_than_it_may_is_named(small_onnx: Path) -> None:
    graph = pipeline.read(small_onnx)
    plan = pipeline.plan(graph, stages=2)
    rough = plan.with_options("stage0", weights="bfloat16")
    pipeline.build(graph, rough.with_options("stage0", tolerance=0.05))
    (crossing_name,) = (spec.name for spec in plan.stages[1].inputs)
    with pytest.raises(BuildError, match=rf"{crossing_name!r} of stage 'stage0' differs .*; the stage allows 1e-06"):
        pipeline.build(graph, rough.with_options("stage0", tolerance=1e-6))


@x86
def test_a_stages_own_target_is_compiled_for(small_onnx: Path) -> None:
    graph = pipeline.read(small_onnx)
    plan = pipeline.plan(graph, stages=2).with_options("stage1", target={"mcpu": "x86-64", "mattr": []})
    bundle = pipeline.build(graph, plan, check=False)
    assert not {"avx", "avx2", "fma"}.intersection(bundle.codes[1].features)
    assert {"avx", "avx2", "fma"} & host_target.flags() <= set(bundle.codes[0].features)
    with pytest.raises(BuildError, match=r"stage 'stage0'.*no-such-key"):
        pipeline.build(graph, plan.with_options("stage0", target={"no-such-key": 1}), check=False)


@x86
def test_the_commands_take_options_for_stages(small_onnx: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    words = ["plan", str(small_onnx), "--stages", "2", "-o", path]
    assert (
        main([*words, "--stage-option", "stage1.weights=float16", "--stage-option", "stage1.target.mcpu=x86-64"]) == 0
    )
    assert Plan.load(path).stages[1].options == StageOptions(weights="float16", target={"mcpu": "x86-64"})
    words = ["build", str(small_onnx), "--plan", path, "-o", str(tmp_path / "small.bundle")]
    words += ["--stage-option", "stage0.precision=float32", "--stage-option", "stage0.float32_layers=a,b"]
    assert main([*words, "--stage-option", "stage1.target.mattr=+avx"]) == 0
    plan = pipeline.Bundle.load(tmp_path / "small.bundle").plan
    assert [stage.options for stage in plan.stages] == [
        StageOptions("float32", float32_layers=("a", "b")),
        StageOptions(weights="float16", target={"mcpu": "x86-64", "mattr": ["+avx"]}),
    ]


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("stage9.precision=float32", "no stage 'stage9'; it has stage0, stage1"),
        (
            "stage1.precison=float32",
            "target, float32_layers; did you mean 'precision'?",
        ),
        ("stage1.precision=float23", "precision is 'float23'; it must be one of float32, float32-exact, bfloat16"),
        ("stage1.winograd=maybe", "winograd is 'maybe'; it must be true or false"),
        ("stage1.weights=float17", "weights is 'float17'; it must be one of float32, float16, bfloat16"),
        ("stage1.tolerance=nan", "tolerance is nan; it must be a number of at least 0"),
        ("stage1.target=x", "must be like 'stage1.precision=bfloat16'"),
        ("precision=auto", "must be like 'stage1.precision=bfloat16'"),
        ("stage1.precision", "must be like 'stage1.precision=bfloat16'"),
    ],
)
def test_mistakes_are_named(small_onnx: Path, option: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(small_onnx), "--stages", "2", "--stage-option", option]) == 2
    assert reason in capsys.readouterr().err


def test_options_that_there_are_not_are_refused() -> None:
    with pytest.raises(PlanError, match=r"stages have no option 'tolerence'; .*did you mean 'tolerance'"):
        skip_plan().with_options("first", tolerence=1.0)


def test_options_of_all_stages_are_planned_with_and_built(small_onnx: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    words = [
        "plan",
        str(small_onnx),
        "--stages",
        "2",
        "--weights",
        "float16",
        "--stage-option",
        "stage1.precision=float32-exact",
    ]
    assert main([*words, "-o", path]) == 0
    options = [StageOptions(weights="float16"), StageOptions("float32-exact", "float16")]
    assert [stage.options for stage in Plan.load(path).stages] == options
    graph = pipeline.read(small_onnx)
    assert [stage.options for stage in pipeline.plan(graph, stages=2, weights="float16").stages] == options[:1] * 2
    # A file's own options stay, and the command line's hold for those that are not in it.
    words = ["build", str(small_onnx), "--plan", path, "--weights", "bfloat16", "--precision", "float32-exact"]
    assert main([*words, "-o", str(tmp_path / "small.bundle")]) == 0
    plan = pipeline.Bundle.load(tmp_path / "small.bundle").plan
    assert [stage.options for stage in plan.stages] == options[1:] * 2


OLD_OPTIONS = [
    ({"winograd": True}, "float32"),
    ({"winograd": False}, "float32-exact"),
    ({"arithmetic": "float16", "weights": "float16"}, "float16"),
    ({"arithmetic": "float32"}, "float32"),
    ({"winograd": None, "arithmetic": None}, None),
]


@pytest.mark.parametrize(("options", "precision"), OLD_OPTIONS)
def test_earlier_names_of_the_precision_are_read(tmp_path: Path, options: dict[str, object], precision: str) -> None:
    """Of plans, of `with_options`, and of a plan in an earlier bundle."""
    skip_plan().save(tmp_path / "plan.json")
    content = json.loads((tmp_path / "plan.json").read_text())
    content["stages"][1]["options"] = options
    (tmp_path / "plan.json").write_text(json.dumps(content))
    plan = skip_plan().with_options("second", precision=precision)
    assert Plan.load(tmp_path / "plan.json") == plan
    assert skip_plan().with_options("second", **options) == plan


def test_earlier_options_of_commands_and_functions_still_work(small_onnx: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    graph = pipeline.read(small_onnx)
    for words, options, precision in (
        # What a build does by default is left to it.
        (["--winograd"], {"winograd": True}, None),
        ([], {"winograd": False}, "float32-exact"),
        (["--arithmetic", "float16"], {"arithmetic": "float16"}, "float16"),
        (["--stage-option", "stage0.arithmetic=float16"], None, "float16"),
    ):
        if words:
            assert main(["plan", str(small_onnx), "--stages", "1", *words, "-o", path]) == 0
            assert Plan.load(path).stages[0].options == StageOptions(precision)
        if options is not None:
            assert pipeline.plan(graph, stages=1, **options).stages[0].options == StageOptions(precision)
