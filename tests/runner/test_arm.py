"""The runner on emulated Arm boards of 64 and 32 bits, built with Zig."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.executor.test_bundle_format import OUTPUT, kept_input
from tests.support.arm_board import make_system
from tests.support.runner import build_runner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

BOARD = ".venv/arm-board"


def emulator(root: Path, name: str) -> str:
    """Return the path of an emulator: this machine's, or that of ``make arm-board``."""
    unpacked = root / BOARD / "emulator/usr/bin" / name
    path = shutil.which(name) or (str(unpacked) if unpacked.exists() else None)
    if path is None:
        pytest.skip(f"there is no {name}; 'make arm-board' brings one along")
    if not importlib.util.find_spec("ziglang"):
        pytest.skip("the runner is built for Arm with Zig; pip install ziglang")
    return path


def check(command: list[str], bundle: Path, folder: Path, processor: str) -> None:
    """Run a kept bundle with the program, and compare its output."""
    np.save(folder / "input.npy", kept_input())
    files = ["--input", str(folder / "input.npy"), "--output", str(folder / "output.npy")]
    environment = {**os.environ, "QEMU_CPU": processor}
    result = subprocess.run(
        [*command, str(bundle), *files], capture_output=True, text=True, check=False, timeout=300, env=environment
    )
    assert (result.returncode, result.stderr) == (0, "")
    np.testing.assert_allclose(np.load(folder / "output.npy")[0], OUTPUT, rtol=1e-5)


@pytest.mark.parametrize("processor", ["cortex-a53", "cortex-a72"])
def test_64_bits(root: Path, tmp_path: Path, processor: str) -> None:
    qemu = emulator(root, "qemu-aarch64-static")
    packages = root / BOARD / "packages"
    built = build_runner("runner-aarch64", "--machine", "aarch64", "--", f"-DPACKAGES={packages.resolve()}")
    command = [qemu, "-L", str(root / BOARD / "root"), str(built / "soc-run")]
    check(command, root / "tests/executor/bundles/format-1-aarch64", tmp_path, processor)


def test_32_bits(root: Path, tmp_path: Path) -> None:
    """TVM's runtime is part of the library here, from the sources in its wheels: there are no wheels for 32 bits."""
    qemu = emulator(root, "qemu-arm-static")
    built = build_runner("runner-armv7l", "--machine", "armv7l", "--", "-DRUNTIME_FROM_SOURCES=ON")
    assert sorted(path.name for path in built.iterdir()) == ["libsoc_pipeline.so", "soc-run"]
    system = root / "build/armhf"
    if not system.exists():
        make_system(system, "armhf", ["libc6"])
    check(
        [qemu, "-L", str(system), str(built / "soc-run")],
        root / "tests/executor/bundles/format-1-armv7l",
        tmp_path,
        "cortex-a9",
    )
