"""Quantised models of other formats than ONNX get scales that are powers of two on request, and then run on VTA."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

import boards
import pipeline
from pipeline.cli import main
from pipeline.errors import ModelError
from pipeline.frontends import relay
from pipeline.model.passes.normalise import clean
from pipeline.quantization.rounding import measure_loss, round_scales
from pipeline.split.graph import from_relax
from pipeline.split.offload import notes
from tests.support.relay_programs import HEADER, random

BOARD, DEVICES = "ultra96-simulated", ("cpu", "vta-simulated", "cpu")
CONV = 'padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3], out_dtype="int32")'
PROGRAM = f"""{HEADER}def @main(%x: Tensor[(1, 16, 8, 8), float32], %w: Tensor[(16, 16, 3, 3), int8],
    %b: Tensor[(16), int32], %v: Tensor[(16, 16, 3, 3), int8]) {{
  %0 = qnn.quantize(%x, 0.03f, 17, out_dtype="int8");
  %1 = qnn.conv2d(%0, %w, 17, 0, 0.03f, 0.007f, {CONV};
  %2 = qnn.requantize(nn.relu(nn.bias_add(%1, %b)), 0.00021f, 0, 0.05f, -20, axis=1, out_dtype="int8");
  %3 = qnn.conv2d(%2, %v, -20, 0, 0.05f, 0.0014f, {CONV};
  %4 = qnn.requantize(%3, 0.00007f, 0, 0.04f, 0, axis=1, out_dtype="int8");
  %5 = qnn.add(nn.relu(%4), %2, 0.04f, 0, 0.05f, -20, 0.07f, 0);
  max(qnn.dequantize(%5, 0.07f, 0), axis=[2, 3])
}}
"""
PARAMS = {
    "w": random(16, 16, 3, 3, dtype="int8") // 2,
    "b": random(16, dtype="int32") * 10,
    "v": random(16, 16, 3, 3, seed=1, dtype="int8") // 2,
}
FRAMES = [{"x": random(1, 16, 8, 8, seed=seed)} for seed in range(4)]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program as a file."""
    path = tmp_path_factory.mktemp("rounding") / "net.relay"
    path.write_text(PROGRAM)
    return path


@pytest.fixture(scope="module")
def rounded_program(program: Path) -> Path:
    """The program with its scales rounded."""
    path = program.with_suffix(".relax")
    round_scales(program, path, params=PARAMS)
    return path


def test_without_a_request_vta_refuses_the_scales_and_names_the_remedy(tmp_path: Path) -> None:
    program = tmp_path / "symmetric.relay"
    program.write_text(PROGRAM.replace("17", "0").replace("-20", "0"))
    graph = pipeline.read(program, params=PARAMS)
    assert {each.device for each in pipeline.plan(graph, BOARD).stages} == {"cpu"}
    groups = [list(each) for _, each in groupby(graph.operators, lambda operator: operator.group)]
    (refused,) = notes(graph, groups, boards.get(BOARD), {})
    assert "is no power of two; `soc-pipeline quantize --power-of-two` changes it" in refused


def test_what_the_program_means_in_real_numbers_is_what_it_computes(program: Path) -> None:
    exact = pipeline.read(program, params=PARAMS)
    real = from_relax(clean(relay.load(program, None, PARAMS, real_arithmetic=True)))
    rounding_loss = measure_loss(exact, real, FRAMES)
    assert rounding_loss.signal_to_noise_db > 35


def test_the_rounded_program_means_nearly_the_same(program: Path, rounded_program: Path) -> None:
    rounding_loss = measure_loss(pipeline.read(program, params=PARAMS), pipeline.read(rounded_program), FRAMES)
    assert rounding_loss.frames == len(FRAMES)
    assert 20 < rounding_loss.signal_to_noise_db < 60


def test_the_rounded_program_runs_on_vta_as_on_the_cpu(rounded_program: Path) -> None:
    graph = pipeline.read(rounded_program)
    plan = pipeline.plan(graph, BOARD, cuts=["%0", "%5"], devices=DEVICES)
    bundle = pipeline.build(graph, plan)
    assert bundle.parity is not None
    assert bundle.parity.largest_error == 0


def test_the_command_rounds_and_reports_the_loss(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "params.npz", **PARAMS)  # type: ignore[arg-type]
    np.save(tmp_path / "frames.npy", np.stack([each["x"] for each in FRAMES]))
    arguments = ["quantize", str(program), "--params", str(tmp_path / "params.npz"), "-o", str(tmp_path / "made.relax")]
    assert main(arguments) == 2
    assert "--power-of-two rounds the scales" in capsys.readouterr().err
    assert main([*arguments, "--power-of-two", "--calibrate", str(tmp_path / "frames.npy"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["frames"] == len(FRAMES)
    assert report["signal_to_noise_db"] > 20
    assert main([*arguments, "--power-of-two", "--frames", "2"]) == 0
    assert "On 2 random frames" in capsys.readouterr().out


def test_programs_without_scales_have_nothing_to_round(tmp_path: Path) -> None:
    program = tmp_path / "shifts.relay"
    program.write_text(
        '#[version = "0.0.5"]\ndef @main(%x: Tensor[(1, 8), int8], %w: Tensor[(4, 8), int8]) {\n'
        '  cast(clip(right_shift(nn.dense(%x, %w, out_dtype="int32"), 5), a_min=-128f, a_max=127f), dtype="int8")\n}',
        encoding="utf-8",
    )
    with pytest.raises(ModelError, match="no scales that could be rounded"):
        round_scales(program, tmp_path / "made.relax")
