"""Vendors' compilers: the programs that ask them, and the Pythons that have them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pipeline.errors import BoardError


class Compiler(NamedTuple):
    """A vendor's compiler."""

    program: str
    """File in this folder that asks it."""
    package: str
    counts_memory: bool = False
    """True if its cycles have those of memories. Otherwise the NPU waits for the bytes of each layer, too."""


COMPILERS = {
    "rknn": Compiler("rknn_program.py", "rknn-toolkit2"),
    "vela": Compiler("vela_program.py", "ethos-u-vela", counts_memory=True),
}
"""Compilers by name. A Makefile target of the name installs each."""

_FIND_PACKAGE = "import sys; from importlib.metadata import version; version(sys.argv[1])"


def variable(compiler: str) -> str:
    """Return the environment variable with the path of a compiler's Python."""
    return f"SOC_PIPELINE_{compiler.upper()}_PYTHON"


def ways_to_name(compiler: str) -> str:
    """Return the option and the variable that name a compiler's Python."""
    return f"--tool {compiler}=PYTHON or {variable(compiler)}"


def check_names(compilers: Mapping[str, object]) -> None:
    """Raise `BoardError` for unknown compilers."""
    if unknown := min(compilers.keys() - COMPILERS.keys(), default=""):
        raise BoardError(f"{unknown!r} is no compiler that quotes; known are {', '.join(COMPILERS)}")


def find_python(compiler: str, tools: Mapping[str, str | Path]) -> str:
    """Return the Python of a compiler, empty if nothing names one.

    Parameters
    ----------
    tools : mapping of str to path
        Pythons by compiler. They come before those of environment variables.

    Raises
    ------
    BoardError
        If it does not exist, or has no such compiler.
    """
    python = str(tools.get(compiler) or os.environ.get(variable(compiler), ""))
    if not python:
        return ""
    package, remedy = COMPILERS[compiler].package, f"run: make {compiler}; name its Python by {ways_to_name(compiler)}"
    path = Path(python).expanduser()
    # It runs in another folder, where a relative path is none.
    program = shutil.which(path.absolute() if "/" in python else path)
    if program is None:
        raise BoardError(f"there is no program {python!r}, which is to have {package}; {remedy}")
    try:
        subprocess.run([program, "-c", _FIND_PACKAGE, package], capture_output=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        raise BoardError(f"{python!r} is no Python with {package}; {remedy}") from None
    return str(program)
