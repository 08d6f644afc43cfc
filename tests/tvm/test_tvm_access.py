"""TVM is imported without its side effects."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import MissingExtra
from pipeline.tvm.access import compiler_lock
from pipeline.tvm.runtime import check_ffi, tvm_ffi

pytestmark = pytest.mark.thorough


def test_the_compiler_s_lock_is_its_holder_s() -> None:
    with compiler_lock, compiler_lock:
        pass


def test_an_interrupt_in_a_function_that_tvm_calls_stays_one() -> None:
    """SIGTERM during a build ended in a traceback, or was taken for an operator that cannot be converted."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tvm_ffi.convert(interrupt)()


@pytest.mark.parametrize(
    "first",
    ["pipeline.read({path!r})", "import tvm; pipeline.read({path!r})"],
    ids=["read", "TVM before"],
)
def test_the_excepthook_is_not_tvm_s(digits_onnx: Path, root: Path, first: str) -> None:
    """TVM's ends all multiprocessing children when the main thread meets an error."""
    code = f"""
import sys, pipeline
{first.format(path=str(digits_onnx))}
assert 'tvm' in sys.modules
print(sys.excepthook is sys.__excepthook__)
"""
    completed = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False, timeout=100
    )
    assert (completed.stdout, completed.stderr) == ("True\n", "")


@pytest.mark.parametrize("first", ["pipeline.read({!r})", "pipeline.chain([{!r}])"])
def test_a_hook_of_the_user_s_own_stays(digits_onnx: Path, root: Path, first: str) -> None:
    code = f"""
import sys, pipeline
sys.excepthook = print
{first.format(str(digits_onnx))}
assert sys.excepthook is print
"""
    completed = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False, timeout=100
    )
    assert (completed.returncode, completed.stderr) == (0, "")


def test_a_wrong_ffi_is_refused_with_the_remedy() -> None:
    """0.1.15 ends in segmentation faults, which nobody could explain."""
    with pytest.raises(MissingExtra, match=r"apache-tvm-ffi 0.1.15.post2 is installed.*pip install 'apache-tvm-ffi"):
        check_ffi("0.1.15.post2")


def run_code(code: str, root: Path) -> tuple[int, str]:
    """Run Python code in a process of its own; return its status and what it says."""
    completed = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False, timeout=100
    )
    return completed.returncode, completed.stdout + completed.stderr


def test_pytorch_is_not_imported_along_and_works_afterwards(root: Path) -> None:
    """Importing it takes several times as long as TVM itself."""
    pytest.importorskip("torch")
    code = """
import sys
import numpy as np
from pipeline.tvm.access import tvm
assert 'torch' not in sys.modules
import torch
weights = torch.arange(6.0, requires_grad=True)
(weights ** 2).sum().backward()
assert tvm.runtime.tensor(weights.grad.numpy()).numpy().tolist() == [0, 2, 4, 6, 8, 10]
assert tvm.runtime.from_dlpack(torch.arange(3)).numpy().tolist() == [0, 1, 2]
"""
    assert run_code(code, root) == (0, "")


def test_another_thread_may_import_pytorch_meanwhile(root: Path) -> None:
    pytest.importorskip("torch")
    code = """
import threading
import numpy
errors = []
def load():
    try:
        import torch
    except ImportError as error:
        errors.append(error)
thread = threading.Thread(target=load)
thread.start()
import pipeline.tvm.access
thread.join()
assert not errors, errors
"""
    assert run_code(code, root) == (0, "")
