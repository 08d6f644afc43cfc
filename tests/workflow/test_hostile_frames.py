"""Frames of any values: a frame is answered, or fails, and the process that runs it goes on.

The fuzzer puts each input right behind and right before a page without access, in a process of its own.  How many
frames the slow tests try of each case is the environment's ``HOSTILE_FRAMES``.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.remote.conftest import Child
from tests.support import runner
from tests.support.fenced_arrays import FencedArray

for package in ("onnx", "onnxruntime", "torch", "tflite", "ai_edge_litert"):
    pytest.importorskip(package, reason=f"{package} is not installed")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages without access as Linux has them")

FRAMES = int(os.environ.get("HOSTILE_FRAMES", "60"))
LIMIT_S = 7200
SUITES = ("integers", "onnx", "tflite", "torch", "relay", "relax")


def check(name: str, first: int, step: int, frames: int, route: str = "here", *target: str) -> int:
    """Check that no frame of some of a suite's cases ends a process, and return how many were tried."""
    from tests.support.frame_fuzzer import fuzz

    outcome = fuzz(name, first, step, frames, route, *target)
    assert outcome.faults == {}
    assert len(outcome.cases) > len(outcome.refused)
    assert outcome.errors < outcome.frames
    return outcome.frames


@pytest.mark.parametrize("behind", [True, False])
def test_a_fence_ends_whoever_leaves_the_array(behind: bool) -> None:
    memory = FencedArray((4, 16), np.dtype(np.float32), behind=behind)
    memory.fill(np.ones((4, 16)))
    assert memory.is_unchanged
    address = memory.array.ctypes.data + (-4 if behind else memory.array.nbytes)
    if (child := os.fork()) == 0:
        import ctypes

        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        ctypes.string_at(address, 4)
        os._exit(0)
    assert os.waitpid(child, 0)[1] & 0x7F == signal.SIGSEGV
    memory.array[0, 0] = 2
    assert not memory.is_unchanged


def test_some_frames() -> None:
    assert check("relax", 0, 20, 60) > 200


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("name", SUITES)
def test_frames(name: str) -> None:
    assert check(name, 0, 1, FRAMES) > 30 * FRAMES


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("name", SUITES)
def test_frames_of_clients(name: str, root: Path, tmp_path: Path) -> None:
    server = Child(root, "--accept-uploads", "--uploads", tmp_path / "uploads")
    try:
        check(name, 1, 8, FRAMES, "server", server.address("cpu"))
        assert server.process.poll() is None
    finally:
        server.kill()


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("name", SUITES)
def test_frames_of_the_runner(name: str) -> None:
    check(name, 2, 8, FRAMES, "runner", str(runner.build_runner() / "libsoc_pipeline.so"))
