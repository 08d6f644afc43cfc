"""The C++ runner for tests: how it is built, and its functions, called through ctypes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tests.support.locks import build_folder
from tests.support.system_tools import skip_without

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).resolve().parents[2]
OK, FAILED, END, TIMEOUT, ERROR = range(5)
ADMISSIONS = {"block": 0, "latest": 1}


def packages() -> Path:
    """Return the folder with the packages tvm and tvm_ffi."""
    spec = find_spec("tvm_ffi")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parents[1]


def build_runner(name: str = "runner", *options: str, system_compiler: bool = True) -> Path:
    """Build the runner as `make runner` does, and return the folder with its program and libraries.

    The system's compiler builds it where there is one, which takes a fifth of Zig's time.
    """
    _skip_without_compiler()
    with build_folder(name) as folder, _system_compiler() if system_compiler else contextlib.nullcontext():
        _call([sys.executable, ROOT / "runner/make.py", "--folder", folder, *options])
    return folder / "soc-runner"


def build_tests(name: str, *options: str) -> Path:
    """Build the programs and libraries of the tests, and return their folder."""
    _skip_without_compiler()
    with build_folder(name) as folder, _system_compiler():
        make = runpy.run_path(str(ROOT / "runner/make.py"))
        cmake, compiler = make["find_cmake"](), make["find_compiler"](platform.machine(), folder)
        source = ROOT / "tests/runner/native"
        configure = ["-S", str(source), "-B", str(folder), f"-DPACKAGES={packages()}", *compiler, *options]
        make["forget_other_tools"](folder, configure)
        _call([*cmake, *configure])
        _call([*cmake, "--build", folder, "--parallel", "2"])
    return folder


def _skip_without_compiler() -> None:
    """Skip where neither the system nor pip has brought what the runner is built with."""
    if not find_spec("cmake"):
        skip_without("cmake", (3, 20))
    # GCC reads floats from text since 11.
    if shutil.which("c++") or not find_spec("ziglang"):
        skip_without("c++", (11,))


@contextlib.contextmanager
def _system_compiler() -> Iterator[None]:
    before = os.environ.get("CXX")
    if before is None and shutil.which("c++"):
        os.environ["CXX"] = "c++"
    yield
    if before is None:
        os.environ.pop("CXX", None)


def _call(command: Sequence[object]) -> None:
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=1700)
    assert result.returncode == 0, f"{result.stdout[-4000:]}\n{result.stderr[-4000:]}"


class Tensor(Structure):
    _fields_ = (
        ("name", c_char_p), ("dtype", c_char_p), ("shape", POINTER(ctypes.c_int64)), ("axes", c_size_t),
        ("nbytes", c_size_t), ("data", c_void_p),
    )  # fmt: skip


class Options(Structure):
    _fields_ = (("admission", c_int), ("in_flight", c_uint32))


class RawResult(Structure):
    _fields_ = (
        ("frame", c_uint64), ("stage", c_char_p), ("reason", c_char_p), ("outputs", POINTER(Tensor)),
        ("place", c_void_p),
    )  # fmt: skip


class Books(Structure):
    _fields_ = (*((name, c_uint64) for name in ("submitted", "delivered", "dropped", "failed", "cancelled",
                                                "in_flight")), ("elapsed_s", c_double))  # fmt: skip

    def balance(self) -> int:
        """Return what the counts differ by: 0."""
        return int(self.submitted - self.delivered - self.dropped - self.failed - self.cancelled - self.in_flight)


class StageBooks(Structure):
    _fields_ = (
        ("name", c_char_p), ("device", c_char_p), ("frames_in", c_uint64), ("frames_out", c_uint64),
        ("failed", c_uint64), ("skipped", c_uint64), ("busy_s", c_double), ("replicas", c_uint32),
        ("queue_length", c_uint32),
    )  # fmt: skip


class RunnerError(Exception):
    """Raised with the runner's own message."""


class Result(NamedTuple):
    """One frame's end."""

    status: int
    frame: int
    arrays: dict[str, np.ndarray]
    stage: str = ""
    reason: str = ""


class Library:
    """The runner's shared library."""

    def __init__(self, path: Path) -> None:
        self.functions = ctypes.CDLL(str(path))
        for name, result in (("soc_open", c_void_p), ("soc_error", c_char_p)):
            getattr(self.functions, name).restype = result
        for name in ("soc_inputs", "soc_outputs"):
            getattr(self.functions, name).restype = POINTER(Tensor)

    def open(self, folder: Path | str, admission: str = "block", in_flight: int = 0) -> RunnerPipeline:
        return RunnerPipeline(self, str(folder), Options(ADMISSIONS[admission], in_flight))

    def error(self) -> RunnerError:
        return RunnerError(self.functions.soc_error().decode())


class RunnerPipeline:
    """A bundle that the runner has opened."""

    def __init__(self, library: Library, folder: str, options: Options) -> None:
        self._library, self._functions = library, library.functions
        pointer = self._functions.soc_open(folder.encode(), byref(options))
        if not pointer:
            raise library.error()
        self._pointer: c_void_p | None = c_void_p(pointer)
        self.inputs, self.outputs = self._specs("soc_inputs"), self._specs("soc_outputs")

    def _specs(self, function: str) -> dict[str, tuple[tuple[int, ...], str]]:
        count = c_size_t()
        tensors = getattr(self._functions, function)(self._pointer, byref(count))
        return {
            tensor.name.decode(): (tuple(tensor.shape[: tensor.axes]), tensor.dtype.decode())
            for tensor in tensors[: count.value]
        }

    def submit(self, arrays: Mapping[str, np.ndarray] | np.ndarray, timeout: float = -1.0) -> int:
        """Submit a frame and return its number, or raise `TimeoutError` or `RunnerError`."""
        values = list(arrays.values()) if isinstance(arrays, Mapping) else [arrays]
        tensors = (Tensor * len(values))(*map(describe, values))
        number = c_uint64()
        status = self._functions.soc_submit(
            self._pointer, tensors, c_size_t(len(values)), c_double(timeout), byref(number)
        )
        if status == TIMEOUT:
            raise TimeoutError
        if status != OK:
            raise self._library.error()
        return number.value

    def next(self, timeout: float = -1.0) -> Result | None:
        """Return the next frame's end, None after the last one; raise `TimeoutError` or `RunnerError`."""
        raw = RawResult()
        status = self._functions.soc_next(self._pointer, byref(raw), c_double(timeout))
        if status == TIMEOUT:
            raise TimeoutError
        if status == END:
            return None
        if status == ERROR:
            raise self._library.error()
        try:
            if status == FAILED:
                return Result(FAILED, raw.frame, {}, raw.stage.decode(), raw.reason.decode(errors="replace"))
            arrays = {tensor.name.decode(): _copy(tensor) for tensor in raw.outputs[: len(self.outputs)]}
            return Result(OK, raw.frame, arrays)
        finally:
            self._functions.soc_release(self._pointer, byref(raw))

    def stream(self, frames: Sequence[Mapping[str, np.ndarray]]) -> list[Result]:
        """Return the ends of frames, submitted as fast as there is room."""
        results: list[Result] = []
        for frame in frames:
            while True:
                try:
                    self.submit(frame, 0.0 if results or len(frames) > 1 else -1.0)
                    break
                except TimeoutError:
                    results.append(self._some_result())
        self.finish()
        while (result := self.next()) is not None:
            results.append(result)
        return results

    def _some_result(self) -> Result:
        result = self.next()
        assert result is not None
        return result

    def cancel(self, number: int) -> bool:
        return bool(self._functions.soc_cancel(self._pointer, c_uint64(number)))

    def finish(self) -> None:
        self._functions.soc_finish(self._pointer)

    def statistics(self) -> Books:
        books = Books()
        self._functions.soc_get_statistics(self._pointer, byref(books))
        return books

    def stage(self, number: int) -> StageBooks:
        books = StageBooks()
        if self._functions.soc_get_stage_statistics(self._pointer, c_size_t(number), byref(books)) != OK:
            raise self._library.error()
        return books

    def close(self) -> Books:
        """Close the pipeline and return its last books."""
        books = Books()
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            self._functions.soc_close(pointer, byref(books))
        return books

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def describe(array: np.ndarray) -> Tensor:
    """Return what the runner is told of an array, which has to outlive it."""
    assert array.flags.c_contiguous
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    dtype = array.dtype.name.encode()
    return Tensor(None, dtype, ctypes.cast(shape, POINTER(ctypes.c_int64)), array.ndim, array.nbytes, array.ctypes.data)


def _copy(tensor: Any) -> np.ndarray:
    shape, dtype = tuple(tensor.shape[: tensor.axes]), np.dtype(tensor.dtype.decode())
    content = ctypes.string_at(tensor.data, tensor.nbytes) if tensor.nbytes else b""
    return np.frombuffer(content, dtype).reshape(shape)
