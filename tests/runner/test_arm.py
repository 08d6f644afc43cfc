"""The runner on emulated Arm boards of 64 bits, built with Zig; `test_armv7` has those of 32 bits."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pipeline.executor.elf import undefined_symbols
from tests.executor.test_bundle_format import OUTPUT, kept_input
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


def assert_old_library_will_do(*files: Path) -> None:
    """Compare the versions of the C library's symbols with 2.27, which boards of 2018 have."""
    versions = {version for file in files for version in undefined_symbols(file.read_bytes()).values()}
    numbers = [version.removeprefix("GLIBC_").split(".") for version in versions if version]
    assert max((int(major), int(minor)) for major, minor in numbers) <= (2, 27), versions


@pytest.mark.parametrize("processor", ["cortex-a53", "cortex-a72"])
def test_64_bits(root: Path, tmp_path: Path, processor: str) -> None:
    qemu = emulator(root, "qemu-aarch64-static")
    packages = root / BOARD / "packages"
    built = build_runner("runner-aarch64", "--machine", "aarch64", "--", f"-DPACKAGES={packages.resolve()}")
    assert_old_library_will_do(built / "soc-run", built / "libsoc_pipeline.so")
    command = [qemu, "-L", str(root / BOARD / "root"), str(built / "soc-run")]
    check(command, root / "tests/executor/bundles/format-1-aarch64", tmp_path, processor)
