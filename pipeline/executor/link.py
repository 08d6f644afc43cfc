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


def linker() -> list[str]:
    """Return the command of a C compiler that can link, the user's own ($CC, $CXX) first.

    Raises
    ------
    BuildError
        If there is none.
    """
    for name in (os.environ.get("CC"), os.environ.get("CXX"), "cc", "gcc", "g++", "clang"):
        program, *options = shlex.split(name or "") or [""]
        if found := shutil.which(program):
            return [found, *options]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    raise BuildError("saving a bundle needs a C compiler as linker; install gcc or clang, or: pip install ziglang")


def link(output: str, objects: Sequence[str], options: Sequence[str] | None = None, **_: object) -> None:
    """Link `objects` to the shared library `output`; has the signature that TVM's `export_library` calls.

    Raises
    ------
    BuildError
        If there is no linker, or it fails; the message has what it printed.
    """
    inputs = [objects] if isinstance(objects, str) else list(objects)
    command = [*linker(), "-shared", "-fPIC", "-o", output, *inputs, *(options or ())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the user's own compiler
    if done.returncode:
        raise BuildError(f"linking {Path(output).name} failed: {done.stderr.strip()[-500:]}")
