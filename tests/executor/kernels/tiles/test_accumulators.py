"""Tiles on processors that multiply by a lane of a vector: elements come a vector at a time."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tvm.target import Target

import pipeline
from pipeline.executor.kernels import microarchitecture
from pipeline.executor.kernels.tiles import tiling
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.split import extract
from tests.executor.kernels.test_targets import assembly, innermost
from tests.support.onnx_models import node, save, weights

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
