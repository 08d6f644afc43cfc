"""Fake NPU: the delegate of LiteRT in fake_npu.c, compiled, and devices that it drives."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pipeline.core.board.board import Device

SOURCE = Path(__file__).with_suffix(".c")


def build_delegate(folder: Path, source: Path = SOURCE) -> Path:
    """Compile the delegate, or another library, with this system's compiler, or Zig."""
    library = folder / f"lib{source.stem}.so"
    compiler = c_compiler()
    command = [*compiler, "-O2", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", str(library), str(source), "-lm"]
    subprocess.run(command, check=True, timeout=120)
    return library


def c_compiler() -> list[str]:
    """Return the command of this system's C compiler, or of Zig, or skip the test."""
    if path := shutil.which("cc") or shutil.which("gcc"):
        return [path]
    if find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc", "-fno-sanitize=undefined"]
    pytest.skip("this system has neither a C compiler nor the package ziglang, which the fake NPU is built by")


def npu(library: Path, **seconds: float) -> Device:
    """Return a device beside the CPU, whose operators of each kind take so long."""
    target = {"kind": "litert", "delegate": str(library), "options": seconds}
    return Device("npu", "litert", memory="npu", target=target, flops=1e12, bytes_per_s=1e11)
