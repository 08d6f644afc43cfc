"""Threads that are used again, and those of stages on several cores, whose helpers TVM keeps per thread."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.executor.bundle import Bundle
from pipeline.executor.parameters import SMALL
from pipeline.executor.tuning.kernel_times import of_calls
from pipeline.system.affinity import process_cores
from pipeline.system.threads import RESTING, Lease, run_in_thread, start_in_thread
from tests.support.alive import collect
from tests.support.onnx_models import node, save, weights

LIMIT = 60.0
SHAPE = (1, 16, 32, 32)
TWO = process_cores()[:2]
needs_two_cores = pytest.mark.skipif(len(TWO) < 2, reason="this machine has one core")
needs_proc = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="this system does not list threads")


class Resources(NamedTuple):
    """Resources of the process: threads of the system, and places in its memory's map."""

    threads: int
    maps: int

    @classmethod
    def now(cls) -> Resources:
        return cls(len(list(Path("/proc/self/task").iterdir())), len(Path("/proc/self/maps").read_text().splitlines()))


def processor_seconds() -> float:
    times = os.times()
    return times.user + times.system


def seconds_until_quiet() -> float:
    """Return the processor time that the process still uses while nobody asks it for anything."""
    begin, end = processor_seconds(), time.monotonic() + LIMIT
    last_seconds = begin
    while time.monotonic() < end:
        time.sleep(0.2)
        if (now := processor_seconds()) - last_seconds < 0.02:
            return now - begin
        last_seconds = now
    raise AssertionError(f"it used {processor_seconds() - begin:.1f} s and goes on")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """One convolution in one stage on two cores."""
    kernel = weights(32, 16, 3, 3)
    assert kernel.nbytes > SMALL, "it is a parameter, and no part of the code"
    nodes = [node("Conv", "x w", "y", pads=[1, 1, 1, 1])]
    path = save(tmp_path_factory.mktemp("model") / "m.onnx", nodes, {"x": SHAPE}, ["y"], {"w": kernel})
    board = Board("two", (Device("cpu", cores=TWO, flops=1e9, bytes_per_s=1e10),))
    graph = pipeline.read(path)
    build = pipeline.build(graph, pipeline.plan(graph, board, stages=1))
    assert build.plan.stages[0].cores == TWO
    return build


@pytest.fixture
def image() -> np.ndarray:
    return weights(*SHAPE)


def load_and_close(bundle: Bundle, image: np.ndarray) -> None:
    for _ in range(30):
        with pipeline.load(bundle) as running:
            running.submit(image).result(LIMIT)


def swap(bundle: Bundle, image: np.ndarray) -> None:
    with pipeline.load(bundle) as running:
        for _ in range(30):
            running.submit(image).result(LIMIT)
            running.swap(bundle)


def set_parameters(bundle: Bundle, image: np.ndarray) -> None:
    ((name, value),) = bundle.codes[0].parameters.items()
    with pipeline.load(bundle) as running:
        for _ in range(30):
            running.submit(image).result(LIMIT)
            running.set_params(bundle.plan.stages[0].name, {name: value})


@needs_two_cores
@needs_proc
@pytest.mark.parametrize("use", [load_and_close, swap, set_parameters])
def test_stages_on_two_cores_leave_no_threads_behind_that_spin(
    bundle: Bundle, image: np.ndarray, use: Callable[[Bundle, np.ndarray], None]
) -> None:
    """TVM's pool outlived the worker's thread: SqueezeNet fell from 182 to 15 frames/s in the course of 200 swaps."""
    with pipeline.load(bundle) as running:
        # As many flows at once as a swap needs.
        running.submit(image).result(LIMIT)
        running.swap(bundle)
        running.submit(image).result(LIMIT)
    seconds_until_quiet()
    first = Resources.now()
    use(bundle, image)
    assert seconds_until_quiet() < 5, "30 pools took 18 s of their common core until the last one had ended"
    last = Resources.now()
    # A swap may need three flows at once: one that ends, the one at work, and the one that is being loaded.
    assert last.threads <= first.threads + 2
    assert last.maps <= first.maps + 30


@needs_proc
@pytest.mark.slow
def test_loading_from_disk_keeps_hardly_any_memory(bundle: Bundle, image: np.ndarray, tmp_path: Path) -> None:
    """It was 50 kB for each load; 6 kB of them are TVM's, which keeps something of each library that it loads."""
    plan = dataclasses.replace(bundle.plan, stages=(dataclasses.replace(bundle.plan.stages[0], cores=TWO[:1]),))
    Bundle(plan, bundle.codes).save(tmp_path / "m.bundle")

    def load_and_close(times: int) -> int:
        for _ in range(times):
            with pipeline.load(tmp_path / "m.bundle") as running:
                running.submit(image).result(LIMIT)
        collect()
        return int(psutil.Process().memory_info().rss)

    first_bytes = load_and_close(100)
    # 0.7 kB were measured for each load.
    assert load_and_close(400) - first_bytes < 400 * 8e3


@needs_two_cores
@needs_proc
def test_measuring_on_two_cores_leaves_no_threads_behind(bundle: Bundle) -> None:
    """Timing in a place of its own has a thread as well."""
    stage, code, device = bundle.plan.stages[0], bundle.codes[0], bundle.plan.board.devices[0]
    assert of_calls(stage, code, device)
    first = Resources.now()
    for _ in range(5):
        of_calls(stage, code, device)
    assert Resources.now().threads <= first.threads


@needs_two_cores
def test_a_build_leaves_the_callers_thread_where_it_may_run(bundle: Bundle) -> None:
    """Kernels on several cores that run in an unconfigured thread leave it on the first cores of the machine."""
    assert bundle.parity is not None
    assert process_cores() == tuple(sorted(os.sched_getaffinity(0)))


@pytest.fixture
def kind() -> object:
    """A kind of thread that no other test has."""
    return object()


def worked_in(kind: object, name: str = "test") -> int:
    return run_in_thread(threading.get_ident, name, kind)


def test_a_thread_of_a_kind_is_used_again(kind: object) -> None:
    first = worked_in(kind)
    assert [worked_in(kind) for _ in range(5)] == [first] * 5
    assert [each.name for each in threading.enumerate() if each.ident == first] == [RESTING]


def test_without_a_kind_a_thread_ends_with_its_work() -> None:
    threads = set(threading.enumerate())
    lease = Lease(lambda: True, "once")
    lease.start()
    assert lease.join(LIMIT)
    assert set(threading.enumerate()) <= threads


def test_threads_of_a_kind_work_at_once_and_under_their_names(kind: object) -> None:
    gate, names = threading.Barrier(3), set[str]()

    def work() -> bool:
        gate.wait(LIMIT)
        names.add(threading.current_thread().name)
        return True

    leases = [Lease(work, f"worker {number}", kind) for number in range(3)]
    for lease in leases:
        lease.start()
    assert all(lease.join(LIMIT) for lease in leases)
    assert names == {"worker 0", "worker 1", "worker 2"}


def test_a_thread_that_is_not_to_be_used_again_ends(kind: object) -> None:
    lease = Lease(lambda: False, "hung", kind)
    lease.start()
    assert lease.join(LIMIT)
    assert worked_in(kind)
    assert "hung" not in [each.name for each in threading.enumerate()]


def test_there_are_never_more_threads_than_were_once_at_work(kind: object) -> None:
    worked_in(kind)
    limit = len([each for each in threading.enumerate() if each.name == RESTING])
    for number in range(20):
        worked_in((kind, number))
    end = time.monotonic() + LIMIT
    while len([each for each in threading.enumerate() if each.name == RESTING]) > limit:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_resting_thread_keeps_nothing_of_its_work(kind: object) -> None:
    class Large:
        pass

    def work(large: Any) -> None:
        assert large is not None

    large = Large()
    reference = weakref.ref(large)
    run_in_thread(lambda large=large: work(large), "test", kind)  # type: ignore[misc]
    del large
    collect()
    assert reference() is None


def test_what_a_thread_raises_reaches_who_asked(kind: object) -> None:
    def fail() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        run_in_thread(fail, "test", kind)
    assert worked_in(kind)


def test_work_that_nobody_waits_for_has_a_future() -> None:
    gate = threading.Event()
    names: list[str] = []

    def work() -> int:
        names.append(threading.current_thread().name)
        gate.wait(LIMIT)
        return 7

    outcome = start_in_thread(work, "files")
    assert not outcome.done()
    assert not outcome.cancel(), "it has begun already, for whoever waits"
    gate.set()
    assert outcome.result(LIMIT) == 7
    assert names == ["files"]


def test_what_such_work_raises_is_its_outcome() -> None:
    def fail() -> None:
        raise SystemExit(3)

    assert isinstance(start_in_thread(fail, "files").exception(LIMIT), SystemExit)


ENDING = """
import sys, time
from pipeline.system.threads import start_in_thread
from pipeline.tvm.runtime import tvm_ffi

class Slow:
    # What is called while the interpreter ends finds no modules.
    def __del__(self, sleep=time.sleep):
        sleep(1)

begun = []
def native():
    begun.append(True)
    time.sleep(0.5)

start_in_thread(tvm_ffi.convert(native), "stage")
while not begun:
    time.sleep(0.01)
sys.modules["kept until the end"] = Slow()
{end}
"""


@pytest.mark.parametrize(
    ("end", "status", "error"),
    [("sys.exit(3)", 3, ""), ("raise ValueError('broken')", 1, "ValueError: broken"), ("", 0, "")],
)
def test_a_program_ends_with_its_own_status_while_a_thread_is_in_native_code(
    root: Path, end: str, status: int, error: str
) -> None:
    """It aborted, with status 134: the thread came back while the interpreter ended."""
    process = subprocess.run(
        [sys.executable, "-c", ENDING.format(end=end)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert process.returncode == status
    assert process.stderr.strip().splitlines()[-1:] == ([error] if error else [])
