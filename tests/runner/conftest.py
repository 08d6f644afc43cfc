"""The runner, built, and bundles for it."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

import pipeline
from tests.support import runner
from tests.support.arithmetic_bundles import ArithmeticCodes, compile_codes, save_faulty
from tests.support.runner import Library

LIMIT_S = 600
"""Seconds for a test, since the first one also builds the runner, while others wait for it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder time for the compiler."""
    for item in items:
        if item.path.parent == Path(__file__).parent and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LIMIT_S))


@pytest.fixture(scope="session")
def built() -> Path:
    """The folder with the runner's program and libraries."""
    return runner.build_runner()


@pytest.fixture(scope="session")
def native(built: Path) -> Path:
    """The folder with the programs and libraries of the tests."""
    return runner.build_tests("runner-tests", f"-DRUNNER={built}")


@pytest.fixture(scope="session")
def library(built: Path) -> Library:
    # TVM's own libraries first: the system's loader then takes them for the runner's, and there is one of each.
    import tvm  # noqa: F401

    return Library(built / "libsoc_pipeline.so")


@pytest.fixture(scope="session")
def digits(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits network in two stages."""
    path = tmp_path_factory.mktemp("digits") / "digits.bundle"
    graph = pipeline.read(root / "pipeline/demo/digits.onnx")
    pipeline.build(graph, pipeline.plan(graph, stages=2)).save(path)
    return path


@pytest.fixture(scope="session")
def codes(library: Library, native: Path, tmp_path_factory: pytest.TempPathFactory) -> ArithmeticCodes:
    """Stages that add up, wait and fail; their kernel is in this process from here on."""
    # Global, so that it finds the runner's libraries, whoever has loaded them.
    ctypes.CDLL(str(native / "libarithmetic.so"), ctypes.RTLD_GLOBAL)
    return compile_codes(tmp_path_factory.mktemp("arithmetic"))


@pytest.fixture(scope="session")
def faulty(codes: ArithmeticCodes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three stages, two of them with replicas, of which two fail on some frames."""
    return save_faulty(codes, tmp_path_factory.mktemp("faulty") / "faulty.bundle")
