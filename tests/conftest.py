"""Fixtures that tests of several rooms use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where measured times are kept meanwhile, instead of in the user's own cache."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOC_PIPELINE_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of notes and other people's files that may lie beside the project."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"there is no folder {folder.name!r} beside the project, which this test reads")
    return folder


@pytest.fixture(scope="session")
def digits_onnx() -> Path:
    """The demo's trained network."""
    pytest.importorskip("onnx")
    return ROOT / "pipeline" / "demo" / "digits.onnx"
