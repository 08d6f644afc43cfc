"""TVM's runtime library: path and version, without importing TVM."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

from pipeline.errors import MissingExtra

FOLDER = Path(__file__).parent.parent / "native"
"""Where the distribution for boards has the library, with its licence and its version."""

NAME = "libtvm_runtime.so"
SORTS = "libtvm_runtime_extra.so"
"""TVM's library of sorting functions, beside the other one; a TVM of somebody's own may lack it."""

VERSION_FILE = "version.txt"


def library() -> Path:
    """Return the path of TVM's runtime library, installed or ours; `MissingExtra` if there is neither."""
    folder = package_folder("tvm")
    # An installed TVM may be asked to compile later, and two runtimes in one process would know nothing of each other.
    path = FOLDER / NAME if folder is None else folder / "lib" / NAME
    if not path.is_file():
        raise MissingExtra(
            f"TVM's runtime library is missing: there is no {str(path)!r}; install the wheel of soc-stages-runtime "
            "for this kind of processor, or TVM itself: pip install 'apache-tvm>=0.27,<0.28'"
        )
    return path


def tvm_version() -> str:
    """Return the version of TVM's runtime, without importing it."""
    if package_folder("tvm") is not None:
        return package_version("tvm")
    file = FOLDER / VERSION_FILE
    return file.read_text(encoding="utf-8").strip() if file.is_file() else "(not installed)"


# Looked for once: what is installed stays, and each client of a server asks for the version.
@functools.cache
def package_folder(name: str) -> Path | None:
    """Return a package's folder without importing it, or None."""
    spec = importlib.util.find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


@functools.cache
def package_version(name: str) -> str:
    """Return a TVM package's version without importing it."""
    # Not from the distribution's metadata: what reads those takes as long to import as half of NumPy.
    folder = package_folder(name)
    text = "" if folder is None else (folder / "_version.py").read_text(encoding="utf-8")
    match = re.search(r"^__version__ = (?:version = )?'([^'\n]+)'", text, re.MULTILINE)
    return match[1] if match else "(not installed)"
