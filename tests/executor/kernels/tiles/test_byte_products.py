"""Products of bytes on Arm: two at a time in 16 bits, or as matrices."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tvm.target import Target

import pipeline
from pipeline.executor.kernels import microarchitecture
from pipeline.executor.kernels.tiles import byte_products
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.split import extract
from tests.executor.kernels.test_targets import BOARDS, assembly
from tests.support.quantized_models import convolution

OLD_ARM = microarchitecture.of_target(Target(BOARDS["cortex-a72"]))


def conv(depth: int, pixels: int = 14) -> ConvShape:
    return ConvShape(1, pixels, pixels, depth, pixels, pixels, 8, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0))


def test_fours_of_bytes_are_ordered_by_halves() -> None:
    assert OLD_ARM.dots == "mlal"
    fours = np.arange(16, dtype=np.int8).view(np.int32).reshape(1, 4)
    expected = [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15]
    assert byte_products.order_bytes(fours, "mlal").view(np.int8).tolist() == expected
    assert byte_products.order_bytes(fours, "sdot") is fours


def test_eight_bytes_of_two_channels_are_a_matrix() -> None:
    # Two terms of eight lanes: the lane in the tens, the term in the units.
    fours = np.array([[10 * lane + term for lane in range(8)] for term in range(2)], np.int32)
    expected = [[0, 1, 10, 11], [40, 41, 50, 51], [20, 21, 30, 31], [60, 61, 70, 71]]
    assert byte_products.order_bytes(fours, "mmla").reshape(-1, 4).tolist() == expected


@pytest.mark.parametrize(
    ("four", "way"),
    [((-128, 0, -128, 0), "mlal_single"), ((0, -128, 0, -128), "mlal_single"), ((-128, -128, -127, -127), "mlal"),
     ((127,) * 4, "mlal")],
)  # fmt: skip
def test_only_two_of_the_lowest_bytes_are_too_large(four: tuple[int, ...], way: str) -> None:
    weights = np.array([(1, 2, 3, 4), four], np.int8)
    assert byte_products.choose(conv(4), weights.reshape(2, 1, 1, 4), OLD_ARM) == way
    largest_sum = 128 * np.abs(weights.reshape(-1, 2, 2).astype(int)).sum(1).max()
    assert (largest_sum > np.iinfo(np.int16).max) == (way == "mlal_single")


@pytest.mark.parametrize(
    ("depth", "pixels", "way"), [(64, 14, "mmla"), (64, 1, "usdot"), (3, 14, "usdot"), (60, 9, "mmla")]
)
def test_matrices_are_for_many_pixels_and_channels(depth: int, pixels: int, way: str) -> None:
    weights = np.zeros((8, 1, 1, depth), np.int8)
    assert byte_products.choose(conv(depth, pixels), weights, replace(OLD_ARM, dots="mmla")) == way
    assert byte_products.choose(conv(depth, pixels), weights, replace(OLD_ARM, dots="sdot")) == "sdot"


@pytest.mark.parametrize(("weight", "adds_first"), [(-127, True), (-128, False)])
def test_products_are_added_up_in_16_bits_where_they_fit(weight: int, adds_first: bool, tmp_path: Path) -> None:
    product = convolution(random.Random("convolution0"))
    constants = {**product.constants, "wq": np.full_like(product.constants["wq"], weight)}
    graph = pipeline.read(replace(product, constants=constants).save(tmp_path / "model.onnx"))
    text = assembly(extract.module(extract.parts(graph, [])[0]), Target(BOARDS["cortex-a53"]))
    assert bool(re.search(r"smlal2\tv\d+\.8h, v\d+\.16b", text)) is adds_first
    assert "sadalp" in text
