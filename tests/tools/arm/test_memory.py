"""Bytes that kernels bound by memory move."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import pipeline
from pipeline.split import extract
from tests.support.quantized_models import depthwise
from tools.arm.memory import memory_uses
from tools.arm.networks import compile_network


@pytest.mark.parametrize("mcpu", ["cortex-a72", "x86-64"])
def test_a_depthwise_convolution_moves_bytes(mcpu: str, tmp_path: Path) -> None:
    """It did on Arm only, and float32 elsewhere, of four times the bytes."""
    product = depthwise(random.Random("depthwise2"))
    graph = pipeline.read(product.save(tmp_path / "model.onnx"))
    triple = "aarch64-linux-gnu" if mcpu.startswith("cortex") else "x86_64-linux-gnu"
    module = extract.module(extract.parts(graph, [])[0])
    network = compile_network(module, {"kind": "llvm", "mtriple": triple, "mcpu": mcpu}, tmp_path / "m.o")
    (use,) = (use for use in memory_uses(network, 1) if "depthwise" in use.function)
    assert 1.0 <= use.total_bytes / use.fewest_bytes <= 1.05
