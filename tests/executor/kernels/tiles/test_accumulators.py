"""Tiles on processors that multiply by a lane of a vector: elements come a vector at a time."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tvm.target import Target

import pipeline
from pipeline.executor.kernels import microarchitecture
from pipeline.executor.kernels.tiles import tiling
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.split import extract
from tests.executor.kernels.test_targets import assembly, innermost
from tests.support.onnx_models import by_onnxruntime, node, save, weights
from tests.support.quantized_models import Product, scales
from tests.support.random_networks import by_cores, eager_microarchitecture

pytestmark = pytest.mark.thorough

ARM = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"}


@pytest.mark.parametrize(("channels", "size", "groups"), [(16, 1, 1), (16, 3, 1), (3, 5, 1), (24, 3, 2)])
def test_arm_multiplies_by_each_lane_of_what_it_loads(channels: int, size: int, groups: int, tmp_path: Path) -> None:
    constants = {"w": weights(32, channels // groups, size, size)}
    nodes = [node("Conv", "x w", "y", pads=[size // 2] * 4, group=groups)]
    file = save(tmp_path / "model.onnx", nodes, {"x": (1, channels, 20, 20)}, ["y"], constants)
    lines = innermost(assembly(extract.module(extract.parts(pipeline.read(file), [])[0]), Target(ARM)))
    products = re.findall(r"\sfmla\tv\d+\.4s, v\d+\.4s, v\d+\.s\[(\d)\]", "\n".join(lines))
    assert set(products) == {"0", "1", "2", "3"}
    # What is no whole vector at the end of a line, of a first layer's colours, may come one by one.
    singles = [line for line in lines if re.search(r"\s(ldr\ts|ld1r)", line)]
    assert len(singles) < len(products) / 8
    if channels % 4 == 0:
        assert singles == []


@pytest.mark.parametrize(
    ("channels", "size", "stride", "outputs"),
    [(1, 3, 1, 20), (1, 3, 2, 20), (2, 3, 2, 9), (3, 1, 1, 40), (3, 3, 2, 32), (3, 7, 2, 12), (1, 2, 1, 6),
     (16, 1, 1, 24)],
)  # fmt: skip
@pytest.mark.one_in(2)
def test_elements_that_come_in_vectors_are_the_same(
    channels: int, size: int, stride: int, outputs: int, tmp_path: Path
) -> None:
    constants = {"w": weights(outputs, channels, size, size)}
    nodes = [node("Conv", "x w", "y", pads=[0] * 4, strides=[stride] * 2)]
    file = save(tmp_path / "model.onnx", nodes, {"x": (1, channels, 13, 17)}, ["y"], constants)
    values = {"x": np.random.default_rng(0).standard_normal((1, channels, 13, 17)).astype(np.float32)}
    # Lanes of a vector can be written for any processor; only the speed differs.
    cpu = eager_microarchitecture(lanes=4, registers=32, lane_products=True)
    result = by_cores(extract.parts(pipeline.read(file), [])[0], values, 1, cpu)
    np.testing.assert_allclose(result, by_onnxruntime(file, values)["y"], rtol=1e-5, atol=1e-4)


def test_pixels_side_by_side_share_vectors_of_bytes(tmp_path: Path) -> None:
    attributes = {"group": 1, "kernel_shape": [3, 3], "dilations": [1, 1], "strides": [2, 2], "pads": [0] * 4}
    values = np.random.default_rng(0).integers(-128, 128, (32, 3, 3, 3)).astype(np.int8)
    constants = {**scales(random.Random(0), 32, 27), "wq": values}
    product = Product("Conv", attributes, (1, 3, 57, 57), (32,), constants)
    part = extract.parts(pipeline.read(product.save(tmp_path / "model.onnx")), [])[0]
    text = assembly(extract.module(part), Target({**ARM, "mattr": ["+dotprod"]}))
    assert re.search(r"sdot\tv\d+\.4s, v\d+\.16b, v\d+\.4b\[3\]", text)
    assert not re.search(r"sdot\tv\d+\.4s, v\d+\.16b, v\d+\.16b", text)


@pytest.mark.parametrize("core", ["cortex-a53", "cortex-a55", "cortex-a72", "neoverse-n1"])
@pytest.mark.parametrize(("channels", "size", "stride"), [(16, 1, 1), (32, 1, 1), (32, 3, 1), (3, 3, 2), (3, 7, 2)])
@pytest.mark.one_in(3)
def test_no_vector_of_a_tile_is_on_the_stack(core: str, channels: int, size: int, stride: int, tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "y", pads=[size // 2] * 4, strides=[stride] * 2)]
    constants = {"w": weights(64, channels, size, size)}
    file = save(tmp_path / "model.onnx", nodes, {"x": (1, channels, 40, 40)}, ["y"], constants)
    stage = extract.module(extract.parts(pipeline.read(file), [])[0])
    lines = innermost(assembly(stage, Target({**ARM, "mcpu": core})))
    assert not [line for line in lines if re.search(r"\s(ld|st)[rp]\tq.*\[sp", line)]


def test_cores_in_order_load_for_many_products_at_once(tmp_path: Path) -> None:
    file = save(tmp_path / "model.onnx", [node("Conv", "x w", "y")], {"x": (1, 64, 40, 40)}, ["y"],
                {"w": weights(64, 64, 1, 1)})  # fmt: skip
    stage = extract.module(extract.parts(pipeline.read(file), [])[0])
    runs = {}
    for core in ("cortex-a53", "neoverse-n1"):
        kinds = re.findall(
            r"\s(fmla|ldr\tq|ldp\tq)", "\n".join(innermost(assembly(stage, Target({**ARM, "mcpu": core}))))
        )
        changes = sum((a == "fmla") != (b == "fmla") for a, b in pairwise(kinds))
        runs[core] = kinds.count("fmla") / (changes / 2)
    assert runs["cortex-a53"] >= 24
    assert runs["neoverse-n1"] < runs["cortex-a53"]


@pytest.mark.parametrize(("registers", "terms"), [(32, 2), (40, 4), (28, 1)])
def test_terms_are_loaded_as_far_as_there_are_registers(registers: int, terms: int) -> None:
    # 18 sums and 6 vectors of elements.
    assert tiling.terms_ahead(tiling.RegisterTile(6, 1, 3), registers, 4) == terms


def test_a_tile_leaves_a_register_for_each_vector_of_elements() -> None:
    cpu = microarchitecture.of_target(Target(ARM))
    assert cpu.lane_products
    for depth in (64, 3):
        conv = ConvShape(1, 14, 14, depth, 14, 14, 256, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
        for tile in tiling.candidates(conv, cpu, 64):
            assert tile.pixels * tile.vectors + tile.pixels + tile.vectors < cpu.registers
        assert tiling.best(conv, cpu).vectors >= 2


def test_long_lines_that_are_no_multiple_of_a_vector_keep_large_tiles() -> None:
    cpu = microarchitecture.of_target(Target(ARM))
    conv = ConvShape(1, 14, 14, 37, 14, 14, 256, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
    assert not tiling.loads_vectors(conv, cpu)
    assert max(tile.pixels * tile.vectors for tile in tiling.candidates(conv, cpu, 64)) >= 26


@pytest.mark.parametrize("depth", [36, 60, 100, 148])
def test_channels_that_are_summed_up_together_are_whole_vectors(depth: int) -> None:
    conv = ConvShape(1, 56, 56, depth, 56, 56, 64, (5, 5), (1, 1), (1, 1), (2, 2, 2, 2))
    small = replace(microarchitecture.of_target(Target(ARM)), l1_bytes=4096)
    assert tiling.channel_block(conv, tiling.best(conv, small), small) % 4 == 0


def test_x86_loads_elements_one_by_one() -> None:
    cpu = microarchitecture.of_target(Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "haswell"}))
    assert not cpu.lane_products


@pytest.mark.parametrize("core", ["cortex-a53", "cortex-a55", "cortex-a72", "neoverse-n1"])
def test_no_vector_of_a_window_is_on_the_stack(core: str, tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "y", pads=[1] * 4, group=64)]
    file = save(tmp_path / "model.onnx", nodes, {"x": (1, 64, 56, 56)}, ["y"], {"w": weights(64, 1, 3, 3)})
    text = assembly(extract.module(extract.parts(pipeline.read(file), [])[0]), Target({**ARM, "mcpu": core}))
    products = [number for number, line in enumerate(text.splitlines()) if "fmla" in line]
    lines = text.splitlines()[products[0] : products[-1]]
    assert not [line for line in lines if re.search(r"\s(ld|st)[rp]\tq.*\[sp", line)]
