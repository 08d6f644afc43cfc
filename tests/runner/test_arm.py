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


OLD = {"GLIBC": (2, 27), "GLIBCXX": (3, 4, 25), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
"""Versions of the libraries of C and C++ on boards of 2018, such as JetPack 4 and its GCC 7.5."""


def assert_old_libraries_will_do(*files: Path) -> None:
    """Compare the versions of the files' symbols with those of boards of 2018."""
    versions = {version for file in files for version in undefined_symbols(file.read_bytes()).values() if version}
    assert "GLIBC" in {version.partition("_")[0] for version in versions}
    for version in versions:
        library, _, number = version.partition("_")
        assert tuple(map(int, number.split("."))) <= OLD[library], version


def test_this_machines_program_runs_on_old_systems() -> None:
    if not importlib.util.find_spec("ziglang"):
        pytest.skip("what the system's compiler links needs the system's C library; pip install ziglang")
    # Zig in place of the system's compiler, as in `make runner`.
    built = build_runner("runner-zig", system_compiler=False)
    assert_old_libraries_will_do(*(path for path in built.iterdir()))
    output = subprocess.run(
        [built / "soc-run", "--version"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert output.startswith("soc-run with TVM 0.27")


@pytest.mark.parametrize("processor", ["cortex-a53", "cortex-a72"])
def test_64_bits(root: Path, tmp_path: Path, processor: str) -> None:
    qemu = emulator(root, "qemu-aarch64-static")
    packages = root / BOARD / "packages"
    built = build_runner("runner-aarch64", "--machine", "aarch64", "--", f"-DPACKAGES={packages.resolve()}")
    assert_old_libraries_will_do(built / "soc-run", built / "libsoc_pipeline.so")
    command = [qemu, "-L", str(root / BOARD / "root"), str(built / "soc-run")]
    check(command, root / "tests/executor/bundles/format-1-aarch64", tmp_path, processor)
