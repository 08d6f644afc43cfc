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


@pytest.mark.parametrize(("mcpu", "least", "most"), [("cortex-a72", 1.0, 1.05), ("x86-64", 1.3, 5.0)])
def test_a_depthwise_convolution_moves_bytes_on_arm(mcpu: str, least: float, most: float, tmp_path: Path) -> None:
    """Elsewhere its data are float32."""
    product = depthwise(random.Random("depthwise2"))
    graph = pipeline.read(product.save(tmp_path / "model.onnx"))
    triple = "aarch64-linux-gnu" if mcpu.startswith("cortex") else "x86_64-linux-gnu"
    module = extract.module(extract.parts(graph, [])[0])
    network = compile_network(module, {"kind": "llvm", "mtriple": triple, "mcpu": mcpu}, tmp_path / "m.o")
    (use,) = (use for use in memory_uses(network, 1) if "depthwise" in use.function)
    assert least <= use.total_bytes / use.fewest_bytes <= most
