"""Many threads of one process load, run and close bundles at once, and nothing ends the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pipeline

RUNS = int(os.environ.get("LOADING_RUNS", "5"))
"""Processes of the slow test, for each number of threads."""

LOADS = """
import importlib.util, sys, threading
import numpy as np
import pipeline

bundle, threads, rounds, beside = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
with pipeline.load(bundle) as running:
    (spec,) = running.plan.inputs
    frame = np.random.default_rng(0).standard_normal(spec.shape).astype(spec.dtype)
    expected = running.submit(frame).result(60)
good = []

def load():
    for _ in range(rounds):
        with pipeline.load(bundle) as running:
            good.append(np.array_equal(running.submit(frame).result(60), expected))

def look():
    while any(thread.is_alive() for thread in loading):
        importlib.util.find_spec("tvm")

def compiler():
    import pipeline.tvm.access

loading = [threading.Thread(target=load) for _ in range(threads)]
for thread in [*loading, threading.Thread(target={"look": look, "compiler": compiler}[beside])]:
    thread.start()
for thread in loading:
    thread.join()
print(sum(good) == threads * rounds)
"""


@pytest.fixture(scope="module")
def bundle(digits_onnx: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = pipeline.read(digits_onnx)
    path = tmp_path_factory.mktemp("bundle") / "digits.bundle"
    pipeline.build(graph, pipeline.plan(graph, stages=2), check=False).save(path)
    return path


def load_in_threads(bundle: Path, root: Path, threads: int, rounds: int, beside: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", LOADS, str(bundle), str(threads), str(rounds), beside],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "True\n", "")


@pytest.mark.parametrize("beside", ["look", "compiler"])
def test_threads_load_while_another_one_looks_for_tvm(bundle: Path, root: Path, beside: str) -> None:
    """Nine of twelve processes died: each search took functions from TVM's table, which has no lock."""
    load_in_threads(bundle, root, 6, 12, beside)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("threads", [2, 6, 16])
def test_no_process_of_many_dies(bundle: Path, root: Path, threads: int) -> None:
    for run in range(RUNS):
        load_in_threads(bundle, root, threads, 20, ("look", "compiler")[run % 2])
