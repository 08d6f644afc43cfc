"""TVM's runtime library is found without TVM's package, or this project's own is."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from importlib import metadata
from importlib.abc import MetaPathFinder
from importlib.machinery import BuiltinImporter
from pathlib import Path

import pytest

from pipeline.tvm import library as tvm_library
from pipeline.tvm.runtime import without_torch


def test_it_is_that_of_an_installed_tvm() -> None:
    assert tvm_library.library().parent.parent.name == "tvm"


def test_versions_are_those_of_the_distributions() -> None:
    assert tvm_library.tvm_version() == metadata.version("apache-tvm")
    assert tvm_library.package_version("tvm_ffi") == metadata.version("apache-tvm-ffi")


def test_a_package_that_is_not_there_has_no_version() -> None:
    assert tvm_library.package_folder("no_such_package") is None
    assert tvm_library.package_version("no_such_package") == "(not installed)"


WITHOUT_TVM = """
import sys
from pipeline.tvm import library as tvm_library
sys.path.clear()
print(tvm_library.tvm_version())
try:
    tvm_library.library()
except tvm_library.MissingExtra as error:
    print(error)
"""


def test_without_tvm_the_remedy_is_named(root: Path) -> None:
    version, remedy = run_code(WITHOUT_TVM, root).splitlines()
    assert version == "(not installed)"
    assert re.search(r"libtvm_runtime.so.*the wheel of soc-stages-runtime", remedy)


def test_no_search_of_another_thread_misses_a_finder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server told its clients that it had no TVM: the list of finders became shorter while it was gone through."""
    block = without_torch()

    class Elsewhere(MetaPathFinder):
        """Ends the import of another thread in the middle of a search."""

        def find_spec(self, name: str, *_: object) -> None:
            if name == "xxsubtype":
                block.__exit__(None, None, None)

    monkeypatch.setattr(sys, "meta_path", [Elsewhere(), BuiltinImporter])
    block.__enter__()
    # One of Python's own modules, which nobody imports.
    assert importlib.util.find_spec("xxsubtype") is not None


def test_the_runtime_is_imported_without_tvm(root: Path) -> None:
    code = """
import sys
import numpy as np
from pipeline.tvm.runtime import empty_tensor, tvm_ffi
tensor = empty_tensor((2, 3), "int8", tvm_ffi.device("cpu", 0))
assert np.from_dlpack(tensor).shape == (2, 3)
print(*({"tvm", "torch"} & set(sys.modules)))
"""
    assert run_code(code, root).strip() == ""


def run_code(code: str, root: Path) -> str:
    """Run Python code in a process of its own, and return what it prints."""
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.fspath(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout
