"""Quantised models on Arm, by each of the ways in which its processors multiply bytes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tvm.target import Target

import pipeline
from pipeline.executor import kernels
from pipeline.executor.kernels import microarchitecture
from tests.executor.arm.conftest import LIMIT, SLOW, ArmPython, board, target
from tests.executor.kernels.quantized import test_quantized_network as network
from tests.support.quantized_models import Product, convolution, dense, depthwise, scales

WAYS = {"cortex-a53": "mlal", "cortex-a72": "mlal", "cortex-a55": "sdot", "cortex-a76": "sdot", "max": "mmla"}
"""Processor -> how it multiplies; two of them issue in order, and have loops of their own for it."""

WINDOWS = list(itertools.product((3, 5), (1, 2), (16, 32, 40), ((9, 9), (14, 7), (8, 21))))
"""Side, stride, channels, and height and width of depthwise convolutions, with rows and channels left over."""

quantised = network.model
"""A fixture: the demo's network as ONNX Runtime quantises it."""

pytestmark = [*SLOW, pytest.mark.parametrize("processor", WAYS)]

RUN = """
import sys
from pathlib import Path
import numpy as np
import pipeline
for path in sorted(Path(sys.argv[1]).glob("*.bundle")):
    with pipeline.load(path) as running:
        results = running.map(np.load(path.with_suffix(".frames.npy")))
        np.save(path.with_suffix(".results.npy"), np.stack(list(results)))
"""
"""Several bundles by one Python, which takes seconds to start where it is emulated."""


@pytest.fixture(autouse=True)
def able(arm: ArmPython, processor: str) -> None:
    """Skip on a board that is real and cannot do it; an emulator's kernel may list nothing, or what is emulated."""
    flag = {"mlal": "asimd", "sdot": "asimddp", "mmla": "i8mm"}[WAYS[processor]]
    listed_flags = arm.run(
        processor, "-c", "from pipeline.executor import host_target; print(*host_target.flags())"
    ).stdout
    if listed_flags.split() and flag not in listed_flags.split():
        pytest.skip(f"this board's processor has no {flag}")


def build(model: Path, folder: Path, processor: str, frames: np.ndarray) -> None:
    """Save a bundle, cut in two where the model is long enough, and its frames."""
    graph = pipeline.read(model)
    plan = pipeline.plan(graph, board(processor), stages=min(2, len(graph.group_ends)))
    pipeline.build(graph, plan, check=False).save(folder / f"{model.stem}.bundle")
    np.save(folder / f"{model.stem}.frames.npy", frames)


def results(arm: ArmPython, processor: str, folder: Path) -> Mapping[str, np.ndarray]:
    process = arm.run(processor, "-c", RUN, folder, limit=2 * LIMIT)
    assert process.returncode == 0, process.stderr
    suffix = ".results.npy"
    return {path.name.removesuffix(suffix): np.load(path) for path in folder.glob(f"*{suffix}")}


def replace_bytes(product: Product, weight: int, zero: int) -> Product:
    """Return the product of unsigned bytes with one weight everywhere."""
    weights = np.full_like(product.constants["wq"], weight)
    return replace(product, constants={**product.constants, "wq": weights, "zx": np.array(zero, np.uint8)})


def test_sums_of_bytes_are_exact(arm: ArmPython, processor: str, tmp_path: Path) -> None:
    assert microarchitecture.of_target(kernels.target_for(Target(target(processor)))).dots == WAYS[processor]
    products = {f"{make.__name__}{seed}": make(random.Random(f"arm{seed}")) for make in (convolution, depthwise, dense)
                for seed in range(6)}  # fmt: skip
    for name, product in products.items():
        build(product.save(tmp_path / f"{name}.onnx"), tmp_path, processor, product.frame()[np.newaxis])
    # The lowest bytes everywhere have the largest products.
    lowest = replace_bytes(dense(random.Random("arm1")), -128, 0)
    build(lowest.save(tmp_path / "lowest.onnx"), tmp_path, processor, np.zeros((1, *lowest.shape), np.float32))
    answers = results(arm, processor, tmp_path)
    for name, product in products.items():
        np.testing.assert_array_equal(answers[name][0], product.compute_reference(product.frame()), err_msg=name)
    np.testing.assert_array_equal(answers["lowest"][0], lowest.compute_reference(np.zeros(lowest.shape, np.float32)))


def depthwise_of(side: int, stride: int, channels: int, size: tuple[int, int]) -> Product:
    """Return a depthwise convolution whose weights allow for two products in 16 bits."""
    draw = random.Random(f"{side}{stride}{channels}{size}")
    constants = scales(draw, channels, side * side)
    weights = np.random.default_rng(draw.randint(0, 1 << 30)).integers(-127, 128, (channels, 1, side, side))
    attributes = {"group": channels, "kernel_shape": [side] * 2, "dilations": [1, 1], "strides": [stride] * 2,
                  "pads": [side // 2] * 4}  # fmt: skip
    return Product("Conv", attributes, (1, channels, *size), (channels,),
                   {**constants, "wq": weights.astype(np.int8)}, draw.random() < 0.5)  # fmt: skip


def test_depthwise_windows_are_exact(arm: ArmPython, processor: str, tmp_path: Path) -> None:
    products = {f"depthwise{number}": depthwise_of(*window) for number, window in enumerate(WINDOWS)}
    for name, product in products.items():
        build(product.save(tmp_path / f"{name}.onnx"), tmp_path, processor, product.frame()[np.newaxis])
    answers = results(arm, processor, tmp_path)
    for name, product in products.items():
        np.testing.assert_array_equal(answers[name][0], product.compute_reference(product.frame()), err_msg=name)


def test_a_quantised_network_answers_as_here(
    arm: ArmPython,
    processor: str,
    quantised: Path,
    tmp_path: Path,
) -> None:
    from pipeline.demo import digits

    images = digits.held_out()[0][:20]
    build(quantised, tmp_path, processor, images)
    answers = results(arm, processor, tmp_path)["digits"]
    graph = pipeline.read(quantised)
    with pipeline.load(pipeline.build(graph, pipeline.plan(graph, stages=1), check=False)) as running:
        expected = np.stack(list(running.map(images)))
    assert np.abs(answers - expected).max() <= network.STEP
