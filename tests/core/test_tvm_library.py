"""TVM's runtime library is found without TVM's package, or this project's own is."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from pipeline.core import tvm_library
from pipeline.errors import MissingExtra


def test_it_is_that_of_an_installed_tvm() -> None:
    assert tvm_library.has_tvm()
    assert tvm_library.library().parent.parent.name == "tvm"


def test_versions_are_those_of_the_distributions() -> None:
    assert tvm_library.tvm_version() == metadata.version("apache-tvm")
    assert tvm_library.package_version("tvm_ffi") == metadata.version("apache-tvm-ffi")


def test_a_package_that_is_not_there_has_no_version() -> None:
    assert tvm_library.package_folder("no_such_package") is None
    assert tvm_library.package_version("no_such_package") == "(not installed)"


@pytest.fixture
def no_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process have no TVM, as a board that only runs."""
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "tvm", raising=False)


@pytest.mark.usefixtures("no_tvm")
def test_without_tvm_the_remedy_is_named() -> None:
    assert not tvm_library.has_tvm()
    assert tvm_library.tvm_version() == "(not installed)"
    with pytest.raises(MissingExtra, match=r"libtvm_runtime.so.*the wheel of soc-pipeline-runtime"):
        tvm_library.library()


def test_the_runtime_is_imported_without_tvm(root: Path) -> None:
    code = """
import sys
import numpy as np
from pipeline.core.tvm_runtime import empty_tensor, tvm_ffi
tensor = empty_tensor((2, 3), "int8", tvm_ffi.device("cpu", 0))
assert np.from_dlpack(tensor).shape == (2, 3)
print(*({"tvm", "torch"} & set(sys.modules)))
"""
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.fspath(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (process.returncode, process.stdout.strip(), process.stderr) == (0, "", "")
