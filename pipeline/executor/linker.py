"""A linker for shared libraries, wherever this machine has one."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.errors import BuildError
from pipeline.executor.host_target import machine

_TRIPLES = {"armv7l": "arm-linux-gnueabihf"}
"""What cross compilers are named after, where it is not the machine and ``-linux-gnu``."""


def linker(built_for: str = "", host: str = "") -> list[str]:
    """Return the command of a C compiler that can link libraries for a machine, such as ``aarch64``.

    For the machine that it runs on, the default, the user's own ($CC, $CXX) comes first.

    Parameters
    ----------
    built_for, host : str
        Machines that the code, and the linker itself, is for; by default both are this one.

    Raises
    ------
    BuildError
        If there is none.
    """
    foreign = machine(built_for or host) != machine(host)
    triple = _TRIPLES.get(built_for, f"{built_for}-linux-gnu")
    # The system's own choice, cc, comes before compilers by name; any of them links C objects.
    candidates = (os.environ.get("CC"), os.environ.get("CXX"), "cc", "gcc", "g++", "clang")
    for name in (f"{triple}-gcc", f"{triple}-g++") if foreign else candidates:
        # A variable may hold options too, as in CC='ccache gcc'; an empty one counts as none.
        program, *options = shlex.split(name or "") or [""]
        if path := shutil.which(program):
            return [path, *options]
    # A wheel with a complete C compiler, for machines where the system's packages cannot be installed.
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc", *(["-target", triple] if foreign else [])]
    package = f"{triple}-gcc" if foreign else "gcc or clang"
    raise BuildError(f"saving a bundle needs a C compiler as linker; install {package}, or: pip install ziglang")


def link(
    output: str, objects: Sequence[str], options: Sequence[str] | None = None, *, built_for: str = "", **_: object
) -> None:
    """Link `objects` to the shared library `output`; has the signature that TVM's `export_library` calls.

    Raises
    ------
    BuildError
        If there is no linker, or it fails; the message has what it printed.
    """
    # TVM gives one name as a text, several as a list.
    inputs = [objects] if isinstance(objects, str) else list(objects)
    command = [*linker(built_for), "-shared", "-fPIC", "-o", output, *inputs, *(options or ())]
    process = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the user's own compiler
    if process.returncode:
        # Only the end: a linker lists the same missing symbol for each object that needs it.
        raise BuildError(f"linking {Path(output).name} failed: {process.stderr.strip()[-500:]}")
