"""LLVM's tools: the disassembler, and the machine-code analyser that estimates the cycles of loops."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pipeline.executor.kernels.microarchitecture import SCHEDULED_AS
from tools.arm.loops import Loop, innermost_loops

# Turns that are simulated.  The first ones fill the pipeline; among 100 they are hardly seen.
ITERATIONS = 100
# The oldest release with times of Neoverse N1.  LLVM 14 says twice as many cycles there.
LEAST_LLVM = 22
# Regions of one call: each is parsed anew after a mistake in another.
_BATCH = 200
# Floating-point multiply-adds of 128 bits that start in a cycle, where LLVM's tables have more.  Those of Cortex-A55
# have two, but its two pipes are 64 bits wide: one takes both (Arm's Cortex-A55 Software Optimization Guide,
# advanced SIMD floating-point instructions, Q-form).
_MOST = {"cortex-a55": 1}


class Unavailable(Exception):
    """Raised where a figure cannot be had; the message is the reason."""


@functools.cache
def tool(name: str) -> str:
    """Return the path of one of LLVM's tools, the newest if there are several.

    Raises
    ------
    Unavailable
        If there is none, or if it is too old.
    """
    # Debian keeps each version in a folder of its own.
    paths = Path("/usr/lib").glob(f"llvm-*/bin/{name}")
    newest = max(paths, key=lambda path: int(path.parts[3].partition("-")[2]), default=None)
    path = shutil.which(name) if newest is None else str(newest)
    advice = "Debian and Ubuntu have it in llvm-22 and its like"
    if path is None:
        raise Unavailable(f"there is no {name}; {advice}")
    release = _version(path)
    if int(release.partition(".")[0]) < LEAST_LLVM:
        raise Unavailable(f"{name} is of LLVM {release}, which is older than {LEAST_LLVM}; {advice}")
    return path


def version() -> str:
    """Return the version of LLVM whose tables the estimates come from."""
    return _version(tool("llvm-mca"))


def _version(path: str) -> str:
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"LLVM version (\d\S*)", text)
    return match[1] if match else "0"


def loops_of(library: Path) -> list[Loop]:
    """Return the innermost loops of an object file or a library that multiply and add."""
    command = [tool("llvm-objdump"), "--disassemble", "--no-show-raw-insn", str(library)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        loops = list(innermost_loops(process.stdout))
    if process.returncode:
        raise Unavailable(f"llvm-objdump cannot read {library.name}: status {process.returncode}")
    return loops


def cycles(loops: Sequence[Loop], cpu: str, triple: str = "aarch64-linux-gnu") -> list[float | None]:
    """Return the estimated cycles of one turn of each loop, None where the analyser does not know an instruction."""
    cpu = SCHEDULED_AS.get(cpu, cpu)
    estimates: list[float | None] = []
    for first in range(0, len(loops), _BATCH):
        estimates += _cycles(loops[first : first + _BATCH], cpu, triple)
    return estimates


def _cycles(loops: Sequence[Loop], cpu: str, triple: str) -> list[float | None]:
    text = "".join(_region(number, loop) for number, loop in enumerate(loops))
    # Every extension, since libraries choose at run time; a core without it only lacks its times.
    options = [f"-mtriple={triple}", f"-mcpu={cpu}", f"-iterations={ITERATIONS}", "-json"]
    options += ["-instruction-info=0", "-resource-pressure=0", *_extensions(triple)]
    result = subprocess.run([tool("llvm-mca"), *options], input=text, capture_output=True, text=True, check=False)
    if result.returncode:
        # One loop that it does not take must not hide the others.
        half = len(loops) // 2
        return [*_cycles(loops[:half], cpu, triple), *_cycles(loops[half:], cpu, triple)] if half else [None]
    regions = json.loads(result.stdout)["CodeRegions"]
    totals = {region["Name"]: region["SummaryView"]["TotalCycles"] / ITERATIONS for region in regions}
    estimates = [totals.get(f"loop{number}") for number in range(len(loops))]
    least = [loop.full_width / _MOST[cpu] if cpu in _MOST else 0.0 for loop in loops]
    return [estimate and max(estimate, bound) for estimate, bound in zip(estimates, least, strict=True)]


def _extensions(triple: str) -> list[str]:
    return ["-mattr=+dotprod,+fullfp16,+i8mm,+bf16"] if triple.startswith("aarch64") else []


def _region(number: int, loop: Loop) -> str:
    name = f"loop{number}"
    code = loop.assembly().replace(".Lloop", f".L{name}")
    return f"# LLVM-MCA-BEGIN {name}\n.L{name}:\n{code}\n# LLVM-MCA-END\n"
