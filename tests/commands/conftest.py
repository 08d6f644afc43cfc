"""The command line as a user meets it: in this process where that is possible, in one of its own where it is not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline import cli

SHAPE = (1, 1, 32, 32)
"""Of the demo network's input."""

# Started from a shell's background job, a process ignores Ctrl-C from its birth.
START = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
START += "from pipeline.cli import main; sys.exit(main())"


@dataclass(frozen=True)
class Done:
    """Status and output of a command."""

    status: int
    out: str
    err: str


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def run(*arguments: object) -> Done:
        capsys.readouterr()
        try:
            status = cli.main([str(each) for each in arguments])
        except SystemExit as end:  # by argparse
            status = end.code if isinstance(end.code, int) else 1
        return Done(status, *capsys.readouterr())

    return run


@pytest.fixture
def process(root: Path) -> Callable[..., Any]:
    def start(*arguments: object, **options: Any) -> subprocess.Popen[str]:
        line = [sys.executable, "-c", START, *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen(line, cwd=root, text=True, **pipes)

    return start


@pytest.fixture(scope="session")
def bundle(digits_onnx: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's network in two stages; read only."""
    path = tmp_path_factory.mktemp("bundle") / "digits.bundle"
    graph = pipeline.read(digits_onnx)
    pipeline.build(graph, pipeline.plan(graph, stages=2), check=False).save(path)
    return path


@pytest.fixture(scope="session")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six frames for it; read only."""
    path = tmp_path_factory.mktemp("frames") / "digits.npy"
    np.save(path, np.random.default_rng(0).random((6, *SHAPE), np.float32))
    return path
