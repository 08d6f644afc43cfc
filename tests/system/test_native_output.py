"""Output of native code does not reach the user, and what others print meanwhile does."""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.system import memory
from pipeline.system.native_output import quietly


def noise(text: str) -> None:
    """Print as native code does, past Python."""
    os.write(2, text.encode())


def test_what_native_code_prints_is_held_back(capfd: pytest.CaptureFixture[str]) -> None:
    quietly(lambda: noise("Warning: Scope Saving\n"))
    noise("after\n")
    assert capfd.readouterr().err == "after\n"


def test_on_an_error_it_is_printed_after_all(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        noise("the reason\n")
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        quietly(fail)
    noise("after\n")
    assert capfd.readouterr().err == "the reason\nafter\n"


def test_it_nests(capfd: pytest.CaptureFixture[str]) -> None:
    def inner() -> int:
        noise("inner\n")
        return 7

    def outer() -> int:
        number = quietly(inner)
        noise("outer\n")
        return number

    assert quietly(outer) == 7
    noise("after\n")
    assert capfd.readouterr().err == "after\n"


def test_threads_do_not_disturb_each_other(capfd: pytest.CaptureFixture[str]) -> None:
    """Two stages are loaded at once: each put the other's temporary file back, and the process was mute for good."""
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait(30)
        for _ in range(50):
            quietly(lambda: noise("noise\n"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    noise("after\n")
    assert capfd.readouterr().err == "after\n"


def test_no_line_of_others_is_lost(capfd: pytest.CaptureFixture[str]) -> None:
    """56 of 1,284 lines of other threads were lost, and all that a process printed that was started meanwhile."""
    begin, end = threading.Event(), threading.Event()

    def work() -> None:
        noise("noise\n")
        begin.set()
        assert end.wait(30)
        noise("noise\n")

    thread = threading.Thread(target=quietly, args=(work,))
    thread.start()
    assert begin.wait(30)
    noise("a line\n")
    subprocess.run([sys.executable, "-S", "-c", "import os; os.write(2, b'a process\\n')"], check=True, timeout=60)
    end.set()
    thread.join(30)
    assert capfd.readouterr().err == "a line\na process\n"


def test_no_file_handle_is_left() -> None:
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        quietly(lambda: None)
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads have descriptors of their own on Linux")
def test_the_end_of_a_map_closes_no_file_of_others(tmp_path: Path) -> None:
    """A model's map ended with the wake-up pipe of signals: its descriptor had the same number, in another table."""
    path = tmp_path / "parameters"
    path.write_bytes(bytes(4096))

    def read() -> mmap.mmap:
        with path.open("rb") as stream:
            return memory.map_file(stream.fileno())

    pages = quietly(read)
    # Until it ends, the thread holds the map as well.
    for thread in threading.enumerate():
        if thread.name == "quiet":
            thread.join(30)
    descriptors = [os.open(os.devnull, os.O_RDONLY) for _ in range(30)]
    try:
        del pages
        for descriptor in descriptors:
            os.fstat(descriptor)
    finally:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)


INTERRUPTED = """
import signal, threading, time
from pipeline.system.native_output import quietly

done = []

def slowly():
    signal.raise_signal(signal.SIGINT)
    time.sleep(0.2)
    done.append(1)

try:
    quietly(slowly)
except KeyboardInterrupt:
    print(done)
"""


def test_an_interrupt_waits_until_the_call_has_ended(root: Path) -> None:
    """Otherwise the caller would give its lock away while the compiler is still at work."""
    completed = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], cwd=root, capture_output=True, text=True, check=False, timeout=60
    )
    assert (completed.stdout, completed.stderr) == ("[1]\n", "")


@pytest.fixture(scope="module")
def bundle(digits_onnx: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = pipeline.read(digits_onnx)
    path = tmp_path_factory.mktemp("bundle") / "digits.bundle"
    pipeline.build(graph, pipeline.plan(graph, stages=1), check=False).save(path)
    return path


WITHOUT_STDERR = """
import sys
import numpy as np
sys.stderr = None
import pipeline
with pipeline.load(sys.argv[1]) as running:
    frame = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in running.plan.inputs}
    running.submit(frame).result(60)
print("ran")
"""


def test_a_process_without_standard_error_loads_and_runs(root: Path, bundle: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_STDERR, str(bundle)]
    completed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=100)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "ran\n", "")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/null"])
def test_the_command_runs_without_standard_error(root: Path, bundle: Path, tmp_path: Path, redirection: str) -> None:
    np.save(tmp_path / "frames.npy", np.zeros((2, 1, 1, 32, 32), np.float32))
    line = (
        f"{sys.executable} -m pipeline.cli run {bundle} --input {tmp_path}/frames.npy "
        f"--output {tmp_path}/results.npz {redirection}"
    )
    completed = subprocess.run(line, shell=True, cwd=root, capture_output=True, text=True, check=False, timeout=100)
    assert completed.returncode == 0
    assert (tmp_path / "results.npz").stat().st_size
