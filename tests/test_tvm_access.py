"""TVM is imported without its side effects, and what it prints does not reach the user."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pipeline import tvm_access
from pipeline.errors import MissingExtra
from pipeline.tvm_access import compiler_lock, quiet


def noise(text: str) -> None:
    """Print as native code does, past Python."""
    os.write(2, text.encode())


def test_what_native_code_prints_is_held_back(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet():
        noise("Warning: Scope Saving\n")
    noise("after\n")
    assert capfd.readouterr().err == "after\n"


def test_on_an_error_it_is_printed_after_all(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="broken"), quiet():
        noise("the reason\n")
        raise ValueError("broken")
    noise("after\n")
    assert capfd.readouterr().err == "the reason\nafter\n"


def test_it_nests(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet():
        with quiet():
            noise("inner\n")
        noise("outer\n")
    noise("after\n")
    assert capfd.readouterr().err == "after\n"


def test_threads_do_not_leave_each_other_s_file_behind(capfd: pytest.CaptureFixture[str]) -> None:
    """Two stages are loaded at once: each put the other's temporary file back, and the process was mute for good."""
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait(30)
        for _ in range(50):
            with quiet():
                noise("noise\n")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    noise("after\n")
    assert capfd.readouterr().err == "after\n"


def test_no_file_handle_is_left() -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0  # noqa: PTH112, PTH208
    for _ in range(20):
        with quiet():
            pass
    after = len(os.listdir("/proc/self/fd")) if before else 0  # noqa: PTH208
    assert after == before


def test_the_compiler_s_lock_is_its_holder_s() -> None:
    with compiler_lock, compiler_lock:
        pass


@pytest.mark.parametrize(
    "first",
    ["pipeline.read({path!r})", "import tvm; pipeline.read({path!r})", "import pipeline.executor.devices.cpu"],
    ids=["read", "TVM before", "run"],
)
def test_the_excepthook_is_not_tvm_s(digits_onnx: Path, root: Path, first: str) -> None:
    """TVM's ends all multiprocessing children when the main thread meets an error."""
    code = f"""
import sys, pipeline
{first.format(path=str(digits_onnx))}
assert 'tvm' in sys.modules
print(sys.excepthook is sys.__excepthook__)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False, timeout=100
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_hook_of_the_user_s_own_stays(digits_onnx: Path, root: Path) -> None:
    code = f"""
import sys, pipeline
sys.excepthook = print
pipeline.read({str(digits_onnx)!r})
assert sys.excepthook is print
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False, timeout=100
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_wrong_ffi_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.1.15 ends in segmentation faults, which nobody could explain."""
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.1.15.post2")
    with pytest.raises(MissingExtra, match=r"apache-tvm-ffi 0.1.15.post2 is installed.*pip install 'apache-tvm-ffi"):
        tvm_access._check_ffi()
