"""Linker of shared libraries, wherever this machine has one."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.errors import BuildError
from pipeline.executor.elf import undefined_symbols
from pipeline.executor.host_target import machine
from pipeline.system.files import cache_folder

_TRIPLES = {"armv7l": "arm-linux-gnueabihf"}
"""Prefixes of cross compilers, where they differ from the machine and ``-linux-gnu``."""
_ZIG_OPTIONS = ("-nostdlib", "-rtlib=compiler-rt", "-s")
"""Options of Zig: only compiler helpers are linked in. A first link takes 5 s with them, 20 s with a C library, which
is there anyway.

With a target named, that is code for any processor of the kind, not for this one only.
"""

_RUNTIME_HELPERS = {"__gnu_f2h_ieee", "__gnu_h2f_ieee", "__truncdfhf2"}
"""Conversions of half floats that TVM's runtime brings along."""


def linker(built_for: str = "", host: str = "") -> list[str]:
    """Return a C compiler command linking for a machine, such as ``aarch64``.

    For this machine, the default, the user's own compiler ($CC, $CXX) comes first. Raises `BuildError` if there is
    none.

    `built_for` and `host`: machines that the code, and the linker itself, is for; by default both are this one.
    """
    processor = machine(built_for or host)
    foreign = processor != machine(host)
    triple = _TRIPLES.get(processor, f"{processor}-linux-gnu")
    # The system's own choice, cc, comes before compilers by name; any of them links C objects.
    candidates = (os.environ.get("CC"), os.environ.get("CXX"), "cc", "gcc", "g++", "clang")
    for name in (f"{triple}-gcc", f"{triple}-g++") if foreign else candidates:
        # A variable may hold options too, as in CC='ccache gcc'; an empty one counts as none.
        program, *options = shlex.split(name or "") or [""]
        if path := shutil.which(program):
            return [path, *options]
    # A wheel with a complete C compiler, which this package brings along.
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc", "-target", triple, *_ZIG_OPTIONS]
    package = f"{triple}-gcc" if foreign else "gcc or clang"
    raise BuildError(f"saving a bundle needs a C compiler as linker; install {package}, or: pip install ziglang")


def is_there(built_for: str) -> bool:
    """Test for a linker for a machine."""
    try:
        return bool(linker(built_for))
    except BuildError:
        return False


def link(
    output: str, objects: Sequence[str], options: Sequence[str] | None = None, *, built_for: str = "", **_: object
) -> None:
    """Link `objects` to library `output`, with the signature for `export_library`.

    Raises `BuildError` if there is no linker, or it fails; the message has what it printed. A library that would lack a
    function is an error, too.
    """
    # TVM gives one name as a text, several as a list.
    inputs = [objects] if isinstance(objects, str) else list(objects)
    # Divisions and the like are calls of the compiler's library, which a board need not have.
    command = [*linker(built_for), "-shared", "-fPIC", "-static-libgcc", "-o", output, *inputs, *(options or ())]
    with _environment(command) as environment:
        process = subprocess.run(  # noqa: S603 - the user's own compiler
            command, capture_output=True, text=True, check=False, env=environment
        )
    if process.returncode:
        # Only the end: a linker lists the same missing symbol for each object that needs it.
        raise BuildError(f"linking {Path(output).name} failed: {process.stderr.strip()[-500:]}")
    _check_helpers(Path(output), command[0])


@contextlib.contextmanager
def _environment(command: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield a linker's environment: Zig hangs without a writable folder."""
    if "ziglang" not in command or "ZIG_GLOBAL_CACHE_DIR" in os.environ:
        yield {**os.environ}
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = cache_folder() or Path(scratch)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            folder = Path(scratch)
        yield {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(folder / "zig")}


def _check_helpers(library: Path, program: str) -> None:
    """Raise `BuildError` for compiler helpers missing at load time.

    Functions of TVM's runtime and of the C library come from other files by intention.
    """
    needs = undefined_symbols(library.read_bytes())
    helpers = {name for name, version in needs.items() if name.startswith("__") and not version.startswith("GLIBC_")}
    if missing := sorted(helpers - _RUNTIME_HELPERS):
        raise BuildError(
            f"linking {library.name} failed: {', '.join(missing)} would be missing, which compilers bring along, but"
            f" not {program}; take another one, such as that of: pip install ziglang"
        )
