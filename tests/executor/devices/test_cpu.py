"""The CPU device: arrays of every kind go in and out unchanged, and threads stay on their cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.executor.build import compile_stage
from pipeline.executor.devices.cpu import CpuRuntime
from pipeline.split import extract
from pipeline.system.memory import ALIGNMENT
from tests.support.onnx_models import HOST, node, save, weights

DTYPES = ["float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool"]


def align(values: np.ndarray, offset: int = 0) -> np.ndarray:
    """Return a copy that begins `offset` bytes behind a multiple of the alignment."""
    room = np.zeros(values.nbytes + 2 * ALIGNMENT, np.uint8)
    begin = -room.ctypes.data % ALIGNMENT + offset
    copy = room[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def read_only(values: np.ndarray) -> np.ndarray:
    copy = align(values)
    copy.setflags(write=False)
    return copy


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "aligned": align,
    "unaligned": lambda values: align(values, values.itemsize),
    "read-only": read_only,
    "transposed": lambda values: np.ascontiguousarray(values.T).T,
    "strided": lambda values: np.repeat(values, 2, axis=0)[::2],
    "reversed": lambda values: np.ascontiguousarray(values[::-1])[::-1],
    "broadcast": lambda values: np.broadcast_to(values[:1], values.shape),
    "empty": lambda values: values[:0],
    "scalar": lambda values: align(np.array(values[0, 0]), values.itemsize),
    "foreign byte order": lambda values: values.astype(values.dtype.newbyteorder(">")),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_go_in_and_out_unchanged(layout: str, dtype: str) -> None:
    """NumPy aligns to 16 bytes, TVM's kernels trust in 64: an array taken as it is would crash the process."""
    runtime = CpuRuntime(HOST)
    array = LAYOUTS[layout]((weights(4, 6) * 2).astype(dtype))
    results = runtime.copy_out(runtime.copy_in(array))
    assert (results.shape, results.dtype) == (array.shape, np.dtype(dtype))
    np.testing.assert_array_equal(results, array)
    assert not results.size or results.ctypes.data % ALIGNMENT == 0


def test_only_what_can_be_shared_is_shared() -> None:
    runtime = CpuRuntime(HOST)
    values = weights(4, 6)
    common = {
        name: bool(np.shares_memory(array, runtime.copy_out(runtime.copy_in(array))))
        for name, layout in LAYOUTS.items()
        for array in [layout(values)]
    }
    assert [name for name, is_shared in common.items() if is_shared] == ["aligned"]


def test_a_tensor_keeps_its_array_s_memory_alive() -> None:
    runtime = CpuRuntime(HOST)
    tensors = [runtime.copy_in(align(np.full((512, 512), number, np.float32))) for number in range(8)]
    arrays = [runtime.copy_out(tensor) for tensor in tensors]
    del tensors
    assert [float(array.min()) for array in arrays] == [float(array.max()) for array in arrays] == list(range(8))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> tuple[StagePlan, Any]:
    nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "a"), node("Neg", "a", "b")]
    path = save(tmp_path_factory.mktemp("stage") / "m.onnx", nodes, {"x": (5, 7)}, ["a", "b"], {"w": weights(7, 9)})
    (part,) = extract.parts(pipeline.read(path), [])
    return StagePlan("s", "cpu", part.inputs, part.outputs), compile_stage(extract.module(part), HOST)


def run(runtime: CpuRuntime, stage: tuple[StagePlan, Any], values: np.ndarray) -> list[np.ndarray]:
    program = runtime.load(*stage)
    return [runtime.copy_out(each) for each in runtime.run(program, [runtime.copy_in(values)])]


@pytest.mark.parametrize("layout", ["aligned", "unaligned", "read-only", "transposed", "strided"])
def test_kernels_read_arrays_of_every_layout(stage: tuple[StagePlan, Any], layout: str) -> None:
    values = LAYOUTS[layout](weights(5, 7, seed=3))
    reference = np.maximum(values @ weights(7, 9), 0)
    positive, negative = run(CpuRuntime(HOST), stage, values)
    np.testing.assert_allclose(positive, reference, atol=1e-5)
    np.testing.assert_allclose(negative, -reference, atol=1e-5)


def test_a_held_output_never_changes(stage: tuple[StagePlan, Any]) -> None:
    runtime = CpuRuntime(HOST)
    program = runtime.load(*stage)
    references = [runtime.run(program, [runtime.copy_in(weights(5, 7, seed=seed))])[0] for seed in range(20)]
    for seed, tensor in enumerate(references):
        reference = np.maximum(weights(5, 7, seed=seed) @ weights(7, 9), 0)
        np.testing.assert_allclose(runtime.copy_out(tensor), reference, atol=1e-5)


def test_threads_of_one_stage_do_not_disturb_each_other(stage: tuple[StagePlan, Any]) -> None:
    """One virtual machine for each thread; two in one corrupt its registers."""
    failures: list[str] = []

    def work(seed: int) -> None:
        runtime = CpuRuntime(HOST)
        program = runtime.load(*stage)
        values = weights(5, 7, seed=seed)
        reference = np.maximum(values @ weights(7, 9), 0)
        for _ in range(300):
            results = runtime.copy_out(runtime.run(program, [runtime.copy_in(values)])[0])
            if not np.allclose(results, reference, atol=1e-5):
                failures.append(f"thread {seed}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not place threads")
@pytest.mark.parametrize(
    ("cores", "reference"),
    [
        (lambda usable: usable[-1:], lambda usable: set(usable[-1:])),
        (lambda usable: (*usable[:1], 1_000_000), lambda usable: set(usable[:1])),
        (lambda usable: (1_000_000,), set),
        (lambda usable: (), set),
    ],
    ids=["one core", "one that exists and one that does not", "none that exists", "none"],
)
def test_a_thread_stays_on_its_cores(stage: tuple[StagePlan, Any], cores: Any, reference: Any) -> None:
    """Also when the bundle comes from a machine with more cores."""
    usable = tuple(sorted(os.sched_getaffinity(0)))
    results: list[Any] = []

    def work() -> None:
        runtime = CpuRuntime(Device("cpu", cores=usable))
        runtime.open(cores(usable))
        results.append(run(runtime, stage, weights(5, 7))[0].shape)
        results.append(os.sched_getaffinity(0))
        runtime.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert results == [(5, 9), reference(usable)]
    assert os.sched_getaffinity(0) == set(usable), "nothing of it follows the caller"
