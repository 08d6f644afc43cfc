"""A stage's file whose numbers point at nothing is refused when it is loaded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from boards.vta.isa.config import PYNQ, ULTRA96
from boards.vta.lowering import artifact
from pipeline.errors import BundleError
from pipeline.executor.bundle import Bundle
from tests.support.bundles import rewrite_library, run_fuzzer

MODEL = """#[version = "0.0.5"]
def @main(%x: Tensor[(1, 16, 4, 4), uint8], %y: Tensor[(1, 20, 6, 6), int8]) {
  (nn.max_pool2d(%x, pool_size=[2, 2], strides=[2, 2]), nn.max_pool2d(%y, pool_size=[2, 2], strides=[2, 2]))
}
"""


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of one stage for VTA, with signed and unsigned bytes; copy it, never change it."""
    folder = tmp_path_factory.mktemp("bundle")
    (folder / "pools.relay").write_text(MODEL)
    graph = pipeline.read(folder / "pools.relay")
    plan = pipeline.plan(graph, "ultra96-simulated", stages=1, devices=["vta-simulated"])
    pipeline.build(graph, plan, check=False).save(folder / "pools.bundle")
    return folder / "pools.bundle"


@pytest.fixture
def bundle_copy(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "copied.bundle"))


def refusal(folder: Path) -> str:
    """Load a bundle and return why that is refused."""
    with pytest.raises(BundleError) as caught:
        pipeline.load(folder)
    (line,) = str(caught.value).splitlines()
    assert str(folder / "stage0.so") in line
    return line


def change_stage(folder: Path, change: Callable[[Any], None]) -> None:
    content = json.loads((folder / "stage0.so").read_bytes())
    change(content)
    rewrite_library(folder, json.dumps(content).encode())


def test_an_unchanged_stage_runs(bundle_copy: Path) -> None:
    change_stage(bundle_copy, lambda _: None)
    x = np.arange(256).astype(np.uint8).reshape(1, 16, 4, 4)
    y = np.arange(720).astype(np.int8).reshape(1, 20, 6, 6)
    with pipeline.load(bundle_copy) as running:
        names = [spec.name for spec in running.plan.outputs]
        results = running.submit({"x": x, "y": y}).result(60)
    for name, image in zip(names, (x, y), strict=True):
        rows, columns = image.shape[2] // 2, image.shape[3] // 2
        expected = image.reshape(1, -1, rows, 2, columns, 2).max((3, 5))
        np.testing.assert_array_equal(results[name], expected)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda stage: stage.update(vta=2), "has format 2 of VTA stages; this version reads 1"),
        (lambda stage: stage.update(base=4097), "base is 4097; it must be a multiple of 4096"),
        (lambda stage: stage.update(base=-4096), "base is -4096"),
        (lambda stage: stage.update(base=1 << 40), "base is 1099511627776"),
        (lambda stage: stage.update(base=8192), "with base 8192, instruction "),
        (lambda stage: stage.update(base=0), "with base 0, instruction "),
        (lambda stage: stage.update(base=0.5), "Expected `int`, got `float`"),
        (lambda stage: stage["inputs"].pop(), "it has 1 inputs, and the plan 2"),
        (lambda stage: stage["outputs"].append(stage["outputs"][0]), "it has 3 outputs, and the plan 2"),
        (lambda stage: stage["inputs"].reverse(), "input 0: extents are [1, 20, 6, 6], and the plan's x: uint8[1, 16"),
        (lambda stage: stage["inputs"][0].update(address=-1), "input 0: address is -1, and its 256 bytes are not in "),
        (lambda stage: stage["outputs"][1].update(address=1 << 62), "output 1: address is 4611686018427387904"),
        (lambda stage: stage["inputs"][1].update(address="0"), "Expected `int`, got `str`"),
        (lambda stage: stage["inputs"][1].update(shape=[20, 6, 7]), "input 1: shape is [20, 6, 7] for a tensor of [1"),
        (lambda stage: stage["inputs"][1].update(shape=[-20, -6, 6]), "input 1: shape is [-20, -6, 6]"),
        (lambda stage: stage["inputs"][1].update(shape=[20, 36]), "of length 3"),
        # Each value of a single channel takes a whole element of 16 bytes: 720 of them end behind the memory.
        (lambda stage: stage["inputs"][1].update(shape=[1, 1, 720], address=20480), "its 11520 bytes are not in 28672"),
        (lambda stage: stage["inputs"][0].update(extents=[1, 256]), "input 0: extents are [1, 256]"),
        (lambda stage: stage["inputs"][0].update(zero=256), "input 0: zero is 256, and the plan's x: uint8"),
        (lambda stage: stage["inputs"][1].update(zero=128), "input 1: zero is 128, and the plan's y: int8"),
        (lambda stage: stage["config"].update(LOG_BLOCK=1 << 40), "LOG_BLOCK is 1099511627776; it must be at most 32"),
        (lambda stage: stage["config"].update(HW_VER="0.0.2"), "instructions of version 0.0.2, and the device is"),
        (lambda stage: stage["config"].update(LOG_UOP_BUFF_SIZE=14), "15_15_18_17 of version 0.0.1"),
        (lambda stage: stage.update(config=7), "a VTA configuration is a JSON object"),
        (lambda stage: stage.pop("base"), "missing required field `base`"),
    ],
)
def test_numbers_that_point_outside_are_refused(bundle_copy: Path, change: Callable[[Any], None], words: str) -> None:
    """Most of them were loaded, and failed with errors of Python or NumPy on each frame."""
    change_stage(bundle_copy, change)
    assert words in refusal(bundle_copy)


@pytest.mark.parametrize("text", ["9" * 4301, "[" * 5000 + "]" * 5000, '"\udcff"', '"\\ud800"', "{", ""])
@pytest.mark.parametrize("key", ["base", "LOG_BLOCK"])
def test_what_no_decoder_takes_is_refused(bundle_copy: Path, key: str, text: str) -> None:
    content = json.loads((bundle_copy / "stage0.so").read_bytes())
    (content if key in content else content["config"])[key] = "@"
    data = json.dumps(content).encode().replace(b'"@"', text.encode("utf-8", "surrogateescape"))
    rewrite_library(bundle_copy, data)
    refusal(bundle_copy)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda arrays: arrays.pop(artifact.STREAM), "it has no array 'vta stream'"),
        (lambda arrays: arrays.update({artifact.STREAM: arrays[artifact.STREAM].reshape(-1)}), "is uint64["),
        (lambda arrays: arrays.update({artifact.STREAM: arrays[artifact.STREAM].view(np.int64)}), "is int64["),
        (lambda arrays: arrays.update({artifact.STREAM: arrays[artifact.STREAM][:0]}), "its 0 instructions"),
        (lambda arrays: arrays.update({artifact.STREAM: arrays[artifact.STREAM][:-1]}), "is not FINISH"),
        (lambda arrays: arrays.update({artifact.STREAM: arrays[artifact.STREAM] | np.uint64(7)}), "opcode is 7"),
        (lambda arrays: arrays.update({artifact.MEMORY: arrays[artifact.MEMORY].view(np.int8)}), "is int8["),
        (lambda arrays: arrays.update({artifact.MEMORY: arrays[artifact.MEMORY][:64]}), "of the memory, which has 64"),
    ],
)
def test_arrays_that_are_no_program_are_refused(
    pristine: Path, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    bundle = Bundle.load(pristine)
    (code,) = bundle.codes
    arrays = dict(code.parameters)
    change(arrays)
    with pytest.raises(BundleError) as caught:
        artifact.read((pristine / "stage0.so").read_bytes(), arrays, bundle.plan.stages[0], ULTRA96)
    assert words in str(caught.value)


def test_a_stage_for_another_accelerator_is_refused(pristine: Path) -> None:
    bundle = Bundle.load(pristine)
    with pytest.raises(BundleError, match=r"of version 0\.0\.1, and the device is .* of version 0\.0\.2"):
        artifact.read((pristine / "stage0.so").read_bytes(), bundle.codes[0].parameters, bundle.plan.stages[0], PYNQ)


def test_changed_stages_with_fitting_checksums(pristine: Path, tmp_path: Path, root: Path) -> None:
    run_fuzzer(root, "vta_stage_fuzzer", pristine, tmp_path / "changed.bundle", range(100))


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_many_changed_stages_with_fitting_checksums(pristine: Path, tmp_path: Path, root: Path) -> None:
    run_fuzzer(root, "vta_stage_fuzzer", pristine, tmp_path / "changed.bundle", range(1000, 2000))
