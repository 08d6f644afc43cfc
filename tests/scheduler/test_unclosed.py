"""Fault 7: dropped pipelines left their threads running."""

import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.scheduler import Pipeline

X = np.arange(4, dtype=np.float32)
ROOT = Path(__file__).parents[2]

# A shell that starts the tests in the background has them, and what they start, ignore Ctrl-C.
PREAMBLE = """
import signal, sys, time, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
import numpy as np
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.scheduler import Pipeline

def plan(kind, seconds):
    x, y, z = (TensorSpec(name, (4,)) for name in "xyz")
    stages = StagePlan("a", "d", (x,), (y,), seconds=seconds), StagePlan("b", "d", (y,), (z,), seconds=seconds)
    return Plan("forgotten", "", Board("test", (Device("d", kind),)), (x,), (z,), stages)

X = np.zeros(4, np.float32)
"""


def start(script: str, *options: str) -> subprocess.Popen[str]:
    code = PREAMBLE + textwrap.dedent(script)
    command = [sys.executable, *options, "-c", code]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_collected_pipeline_warns_and_its_threads_end(chain: Callable[..., Plan]) -> None:
    thread_count = threading.active_count()
    running: Pipeline | None = Pipeline(chain(3))
    assert running is not None
    assert threading.active_count() == thread_count + 3
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("stage ")]
    with pytest.warns(ResourceWarning, match="'test' was never closed; use it in a 'with' block"):
        running = None
    for thread in threads:
        thread.join(30)
    assert threading.active_count() == thread_count


def test_its_frames_are_still_delivered(chain: Callable[..., Plan]) -> None:
    with pytest.warns(ResourceWarning, match="never closed"):
        future = Pipeline(chain(2, kind="simulated", seconds=0.01)).submit(X)
    np.testing.assert_array_equal(future.result(30), X)


def test_one_left_until_the_interpreter_ends_warns() -> None:
    script = """
    running = Pipeline(plan("simulated", 0.01))
    futures = [running.submit(X) for _ in range(4)]
    """
    process = start(script, "-W", "always")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "ResourceWarning: the pipeline 'forgotten' was never closed" in errors
    assert "Traceback" not in errors


INTERRUPTED = {
    "waiting for a result": "running.submit(X).result()",
    "waiting at the entrance": "while True: running.submit(X)",
    "in map": "for _ in running.map(X for _ in range(10**9)): pass",
    "between calls": "running.submit(X); threading.Event().wait()",
    "waiting for an output": "running.set_input('x', X); running.run(); running.get_output()",
}


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
@pytest.mark.parametrize("seconds", [0.005, 30.0], ids=["quick stages", "stages that take 30 s"])
@pytest.mark.parametrize("hook", INTERRUPTED)
@pytest.mark.one_in(2)
def test_ctrl_c_ends_within_a_second(hook: str, seconds: float) -> None:
    script = f"""
    try:
        with Pipeline(plan("simulated", {seconds})) as running:
            print("ready", flush=True)
            {INTERRUPTED[hook]}
            while True: threading.Event().wait()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    """
    process = start(script)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)  # let it reach the place; earlier is as good
    process.send_signal(signal.SIGINT)
    try:
        # Its own second, and a loaded machine's.
        output, errors = process.communicate(timeout=1 + 5)
    finally:
        process.kill()
    assert (process.returncode, output, errors) == (0, "interrupted\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_ctrl_c_while_the_block_is_left_ends_too() -> None:
    script = """
    try:
        with Pipeline(plan("simulated", 30.0)) as running:
            running.submit(X)
            print("ready", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    """
    process = start(script)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=1 + 5)
    assert (process.returncode, output, errors) == (0, "interrupted\n", "")


def test_the_scheduler_does_not_load_the_compiler() -> None:
    script = """
    with Pipeline(plan("null", 0.0)) as running:
        running.submit(X).result()
    print([name for name in sys.modules if name.startswith(("tvm", "pipeline.split"))])
    """
    output, errors = start(script).communicate(timeout=60)
    assert (output, errors) == ("[]\n", "")
