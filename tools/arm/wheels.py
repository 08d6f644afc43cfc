"""Main loops of ONNX Runtime's and LiteRT's libraries for 64-bit Arm, from the wheels that PyPI has of them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pipeline.system.files import cache_folder
from tools.arm import analyser
from tools.arm.analyser import Unavailable
from tools.arm.loops import Loop

# Newest releases when this was written; pinned, so that a figure can be found again.
WHEELS = {
    "onnxruntime": ("onnxruntime==1.32.0", "onnxruntime/capi/onnxruntime_pybind11_state*.so"),
    "litert": ("ai-edge-litert==2.3.0", "ai_edge_litert/libLiteRt.so"),
}
"""Name -> what pip is asked for, and the library in the wheel."""

_PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64")
_PYTHON = "3.11"
_LIMIT_S = 300

FEWEST = 32
"""Multiplying instructions of a main loop: a smaller one is for what a large tile leaves over."""

DENSE = 0.8
"""Products for each instruction, as a share of those of the densest loop of its kind."""


class MainLoops(NamedTuple):
    """Main loops of one kind in one library.

    Attributes
    ----------
    kind : str
    loops : list of (float, Loop)
        Products per cycle, from the most on.
    """

    kind: str
    loops: list[tuple[float, Loop]]


@cache
def loops(name: str) -> list[Loop]:
    """Return the innermost loops of a library that are long enough to be main ones.

    Raises
    ------
    Unavailable
        If the wheel or a tool cannot be had.
    """
    requirement, pattern = WHEELS[name]
    wheel = _fetch(requirement)
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        member = next((each for each in archive.namelist() if fnmatch(each, pattern)), None)
        if member is None:
            raise Unavailable(f"{wheel.name} has no {pattern}")
        library = Path(archive.extract(member, folder))
        return [loop for loop in analyser.loops_of(library) if loop.multipliers >= FEWEST]


def _fetch(requirement: str) -> Path:
    """Return the file of a wheel, which pip brings at the first time."""
    folder = (cache_folder() or Path(tempfile.gettempdir())) / "wheels-aarch64"
    pattern = f"{requirement.replace('-', '_').replace('==', '-')}-*.whl"
    if not list(folder.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--disable-pip-version-check", "--dest", str(folder), "--implementation", "cp"]
        command += ["--python-version", _PYTHON, *(f"--platform={platform}" for platform in _PLATFORMS), requirement]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
        if result.returncode:
            raise Unavailable(f"pip cannot fetch {requirement}: {(result.stderr.strip().splitlines() or ['?'])[-1]}")
    wheel = next(iter(folder.glob(pattern)), None)
    if wheel is None:
        raise Unavailable(f"pip fetched {requirement} under another name than {pattern}")
    return wheel


def main_loops(name: str, cpu: str, kinds: Sequence[str]) -> list[MainLoops]:
    """Return a library's main loops of some kinds, with the products per cycle that a core is estimated to reach."""
    selections = {kind: dense_loops(loops(name), kind) for kind in kinds}
    estimates = []
    for kind, selection in selections.items():
        cycles = analyser.cycles(selection, cpu)
        rates = [(loop.macs / turn, loop) for loop, turn in zip(selection, cycles, strict=True) if turn]
        if rates:
            estimates.append(MainLoops(kind, sorted(rates, key=lambda rate: -rate[0])))
    return estimates


def dense_loops(candidates: Sequence[Loop], kind: str) -> list[Loop]:
    """Return the loops of a kind that do little else than multiply."""
    loops_of_kind = [loop for loop in candidates if loop.kind == kind]
    densest = max((_density(loop) for loop in loops_of_kind), default=0.0)
    return [loop for loop in loops_of_kind if _density(loop) >= DENSE * densest]


def _density(loop: Loop) -> float:
    return loop.macs / len(loop.instructions)
