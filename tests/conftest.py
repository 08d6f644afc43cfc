"""Fixtures that tests of several rooms use."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from pipeline.system import optional

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle

pytest_plugins = ["tests.support.one_in", "tests.support.skips"]

ROOT = Path(__file__).resolve().parent.parent

# How long an example takes to make or to try says something of the machine, which may be busy, and not of the code.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")


# Tests import it in places of their own as well; see `pipeline.system.optional`.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
optional.hide_telemetry("openvino")

# Images of containers often forbid bytecode files.  Without them each of the hundreds of processes that tests start
# compiles the package again, which takes longer than most of what they do.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_configure() -> None:
    """Let signals do in tests, and in what they start, what they do by default.

    Under nohup, and as a shell's background job, processes ignore some from their birth.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes ``-n auto`` is: more than cores, since many tests wait for other processes."""
    cores = len(os.sched_getaffinity(0))
    return cores + (cores + 1) // 2


def pytest_collection_finish() -> None:
    """Leave out of all later garbage collections what importing has made: most of what there is."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder of measured times for the session, instead of the user's own cache."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOC_PIPELINE_CACHE", str(folder))
        # What Zig compiles once takes seconds, and is the same for all tests.
        if "ZIG_GLOBAL_CACHE_DIR" not in os.environ:
            patch.setenv("ZIG_GLOBAL_CACHE_DIR", str(ROOT / "build" / "zig"))
        yield folder


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root."""
    return ROOT


@pytest.fixture(scope="session")
def digits_onnx() -> Path:
    """The demo's trained network."""
    pytest.importorskip("onnx")
    return ROOT / "pipeline" / "demo" / "digits.onnx"


@pytest.fixture(scope="session")
def detector_bundle() -> Bundle:
    """The demo's detector on one core."""
    pytest.importorskip("onnx")
    import pipeline
    from pipeline.demo.detector import FILE

    graph = pipeline.read(FILE)
    return pipeline.build(graph, pipeline.plan(graph, stages=1), check=False)


@pytest.fixture(scope="session")
def small_onnx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two convolutions and a dense layer, for what has to build some network: that takes a tenth as long."""
    pytest.importorskip("onnx")
    from tests.support.onnx_models import node, save, weights

    nodes = [
        node("Conv", "x a", "t1", "first", pads=[1] * 4),
        node("Relu", "t1", "t2", "positive"),
        node("Conv", "t2 b", "t3", "second", pads=[1] * 4),
        node("Flatten", "t3", "t4", "flat"),
        node("Gemm", "t4 c", "y", "dense"),
    ]
    constants = {"a": weights(8, 4, 3, 3) / 6, "b": weights(8, 8, 3, 3) / 8, "c": weights(8 * 64, 10) / 23}
    return save(tmp_path_factory.mktemp("small") / "small.onnx", nodes, {"x": (1, 4, 8, 8)}, ["y"], constants)
