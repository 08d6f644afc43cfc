"""Products of bytes two at a time in 16 bits, on Arm without dot products."""

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
from pipeline.split import extract
from tests.executor.kernels.test_targets import BOARDS, assembly
from tests.support.quantized_models import convolution

OLD_ARM = microarchitecture.of_target(Target(BOARDS["cortex-a72"]))


def test_fours_of_bytes_are_ordered_by_halves() -> None:
    assert OLD_ARM.dots == "mlal"
    fours = np.arange(16, dtype=np.int8).view(np.int32)
    expected = [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15]
    assert byte_products.order_bytes(fours, OLD_ARM).view(np.int8).tolist() == expected
    assert byte_products.order_bytes(fours, replace(OLD_ARM, dots="sdot")) is fours


@pytest.mark.parametrize(
    ("four", "overflows"),
    [((-128, 0, -128, 0), True), ((0, -128, 0, -128), True), ((-128, -128, -127, -127), False), ((127,) * 4, False)],
)
def test_only_two_of_the_lowest_bytes_are_too_large(four: tuple[int, ...], overflows: bool) -> None:
    weights = np.array([(1, 2, 3, 4), four], np.int8)
    assert byte_products.may_overflow(weights, OLD_ARM) is overflows
    largest_sum = 128 * np.abs(weights.reshape(-1, 2, 2).astype(int)).sum(1).max()
    assert (largest_sum > np.iinfo(np.int16).max) == overflows
    assert not byte_products.may_overflow(weights, replace(OLD_ARM, dots="sdot"))


@pytest.mark.parametrize(("weight", "adds_first"), [(-127, True), (-128, False)])
def test_products_are_added_up_in_16_bits_where_they_fit(weight: int, adds_first: bool, tmp_path: Path) -> None:
    product = convolution(random.Random("convolution0"))
    constants = {**product.constants, "wq": np.full_like(product.constants["wq"], weight)}
    graph = pipeline.read(replace(product, constants=constants).save(tmp_path / "model.onnx"))
    text = assembly(extract.module(extract.parts(graph, [])[0]), Target(BOARDS["cortex-a53"]))
    assert bool(re.search(r"smlal2\tv\d+\.8h, v\d+\.16b", text)) is adds_first
    assert "sadalp" in text
