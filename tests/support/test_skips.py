"""Skips for want of an extra are noted by one run, and failures in another; those for want of hardware are neither."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ONE = """
import pytest

def test_without_a_package():
    pytest.importorskip("no_such_package")

@pytest.mark.parametrize("name", ["a b"])
@pytest.mark.skipif(True, reason="compiler is missing")
def test_without_a_tool(name):
    raise AssertionError

@pytest.mark.skipif(True, reason="TVM finds no CUDA device here")
def test_without_a_gpu():
    raise AssertionError

def test_that_runs():
    pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of tests; one is skipped as a whole."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -ra\n")
    (tmp_path / "test_one.py").write_text(ONE)
    (tmp_path / "test_two.py").write_text('import pytest\n\npytest.importorskip("no_such_package")\n')
    return tmp_path


def run(folder: Path, root: Path, *options: str) -> str:
    """Return what pytest prints."""
    line = [sys.executable, "-m", "pytest", "-p", "tests.support.skips", "-p", "no:cacheprovider", *options]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    result = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)
    return result.stdout + result.stderr


def test_one_run_notes_what_an_extra_would_have_run(folder: Path, root: Path) -> None:
    """Also where the tests run in other processes."""
    out = run(folder, root, "--note-skips", "notes", "--numprocesses", "1")
    assert "1 passed, 4 skipped" in out
    names = sorted((folder / "notes").read_text().splitlines())
    assert names == ["test_one.py::test_without_a_package", "test_one.py::test_without_a_tool[a b]", "test_two.py"]


def test_another_run_fails_where_they_are_skipped_still(folder: Path, root: Path) -> None:
    (folder / "notes").write_text("test_one.py\ntest_two.py\n")
    out = run(folder, root, "--require-extras", "--continue-on-collection-errors", "@notes")
    assert "1 failed, 1 passed, 1 skipped, 2 errors" in out
    assert "was skipped, with all extras" in out
    assert "compiler is missing" in out
