"""A 64-bit Arm board for tests: a real one, or the emulated one of ``make arm-board``."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.core.board.board import Board, Device
from pipeline.errors import BuildError
from pipeline.executor.linker import linker

PYTHON = "AARCH64_PYTHON"
EMULATED = ".venv/arm-board/python"
LIMIT = 300.0
"""Seconds that an emulated board may take for a few frames, on a busy machine."""

SLOW = (pytest.mark.slow, pytest.mark.timeout(900))

TARGETS = {
    "cortex-a53": {"mcpu": "cortex-a53", "mattr": ["+neon"]},
    "cortex-a72": {"mcpu": "cortex-a72", "mattr": ["+neon"]},
    "cortex-a55": {"mcpu": "cortex-a55", "mattr": ["+neon", "+dotprod"]},
    "cortex-a76": {"mcpu": "cortex-a76", "mattr": ["+neon", "+dotprod"]},
    "neoverse-n1": {"mcpu": "neoverse-n1", "mattr": ["+neon", "+dotprod"]},
    "neoverse-v1": {"mcpu": "neoverse-v1", "mattr": ["+neon", "+dotprod", "+i8mm"]},
    "max": {"mcpu": "cortex-a76", "mattr": ["+neon", "+dotprod", "+i8mm", "+bf16"]},
}
"""By the emulator's names of processors; the last one has all that there is, and no name of its own."""

EMULATED_AS = {"cortex-a55": "cortex-a76", "neoverse-v1": "max"}
"""Processor that older emulators do not know -> one that they know, with the same instructions."""


def target(processor: str) -> dict[str, object]:
    """Return TVM's target for a processor."""
    return {"kind": "llvm", "mtriple": "aarch64-linux-gnu", **TARGETS[processor]}


def board(processor: str) -> Board:
    """Return a board with two cores of a processor."""
    return Board("arm", (Device("cpu", cores=(0, 1), target=target(processor)),))


@dataclass(frozen=True)
class ArmPython:
    """A Python on Arm.

    Attributes
    ----------
    command : tuple of str
    root : Path
        The project's folder, where it finds this package.
    """

    command: tuple[str, ...]
    root: Path

    def environment(self, processor: str) -> dict[str, str]:
        """Return the variables for a processor, and for a board that has TVM's runtime only."""
        return {**os.environ, "QEMU_CPU": EMULATED_AS.get(processor, processor), "TVM_USE_RUNTIME_LIB": "1"}

    def run(self, processor: str, *arguments: object, limit: float = LIMIT) -> subprocess.CompletedProcess[str]:
        """Run Python there for so many seconds at most, and return how it ended."""
        line = [*self.command, *map(str, arguments)]
        environment = self.environment(processor)
        return subprocess.run(
            line, cwd=self.root, env=environment, capture_output=True, text=True, check=False, timeout=limit
        )


@pytest.fixture(scope="session")
def arm(root: Path) -> ArmPython:
    """Return the board's Python; without a board or a linker for it the test is skipped, which says why."""
    command = shlex.split(os.environ.get(PYTHON, ""))
    if not command and not (emulated := root / EMULATED).exists():
        pytest.skip(
            f"there is no Arm board: 'make arm-board' makes an emulated one, or ${PYTHON} names a Python on one"
        )
    try:
        linker("aarch64")
    except BuildError as error:
        pytest.skip(str(error))
    return ArmPython(tuple(command) or (str(emulated),), root)
