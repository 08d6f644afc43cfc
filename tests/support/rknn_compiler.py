"""RKNN's compiler: a stand-in that prints its table of layers."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pipeline.measure.quotes.compilers import variable
from tests.support.distributions import write_distribution

# RKNN's log of a convolution with the activation in it, of a pool without cycles, and of what the CPU is left; it does
# not compile models with a Sin.
API = """
import os
from pathlib import Path

import onnx

KINDS = {"Conv": ("ConvRelu", "NPU", "1000/3000/3000"), "MaxPool": ("MaxPool", "NPU", "0/0/0"),
         "Softmax": ("exSoftmax13", "CPU", "0/0/0"), "Exp": ("Exp", "CPU", "0/0/0")}


class RKNN:
    def __init__(self, verbose):
        Path(os.environ["COMPILES"]).open("a").write("x")

    def config(self, target_platform):
        assert target_platform == "rk3588"

    def load_onnx(self, model):
        self.model = onnx.load(model)
        return 0

    def build(self, do_quantization):
        if any(node.op_type == "Sin" for node in self.model.graph.node):
            print("\\033[1;31mE\\033[0m RKNN: [20:01:02.003] unsupported operator: Sin")
            return -1
        print("D RKNN: [20:01:02.003] ID   OpType  DataType Target InputShape  OutputShape  Cycles RW(KB) FullName")
        for number, node in enumerate(self.model.graph.node):
            if node.op_type in KINDS:
                kind, target, cycles = KINDS[node.op_type]
                print(f"D RKNN: [20:01:02.003] {number}    {kind}   FLOAT16  {target}    (1,4,6,6),...  (1,4,6,6)   "
                      f"{cycles}   7   {node.op_type}:{node.name}_made#1")
        return 0

    def export_rknn(self, path):
        return 0

    def release(self):
        pass
"""


def install_rknn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let plans ask the stand-in; return the file with a letter for each model that it has seen."""
    site = folder / "site"
    (site / "rknn").mkdir(parents=True)
    (site / "rknn" / "api.py").write_text(API, encoding="utf-8")
    write_distribution(site, "rknn_toolkit2", "", {}, version="9.8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(site), os.environ.get("PYTHONPATH", ""))))
    monkeypatch.setenv("COMPILES", str(folder / "compiles"))
    monkeypatch.setenv(variable("rknn"), sys.executable)
    return folder / "compiles"
