"""Clients that come and go with stages of every runtime: neither the server nor they die, and all answers are right.

The long one takes as many seconds as ``CROWD_SECONDS`` says; `make crowd` runs it for ten minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
pytest.importorskip("openvino", reason="OpenVINO is not installed")

import pipeline
from pipeline.core.board.board import Board, Device
from tests.frontends.tflite.test_tflite import classifier
from tests.remote.conftest import Child

KINDS = ("cpu", "onnxruntime", "openvino", "litert")
SECONDS = float(os.environ.get("CROWD_SECONDS", "20"))

CLIENTS = """
import collections, random, sys, threading, time
import numpy as np
import pipeline
from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.core.remote_address import parse
from pipeline.remote.connection import Connection, ServerBusy, ServerRefusal

folder, server, seconds, seed, threads, *kinds = sys.argv[1:]
frame = np.load(f"{folder}/frame.npy")
expected = {kind: np.load(f"{folder}/{kind}.npy") for kind in kinds}
end = time.monotonic() + float(seconds)
counts = collections.Counter()

def stream(kind, **options):
    with pipeline.load(f"{folder}/{kind}.bundle", **options) as running:
        result = running.submit(frame).result(100)
        assert np.array_equal(result, expected[kind]), kind
    counts[kind] += 1

def ask_target():
    connection = Connection(parse(f"{server}/cpu"))
    assert connection.target()["kind"] == "llvm"
    connection.close()
    counts["target"] += 1

def ask_missing():
    # Where there is no such device, the server imports TVM with its compiler before it can say so.
    connection = Connection(parse(f"{server}/cuda"))
    try:
        connection.open(StagePlan("s", "gpu", (TensorSpec("x", (4,)),), (TensorSpec("y", (4,)),)), None)
    except ServerRefusal:
        counts["refused"] += 1
    finally:
        connection.close()

def visit(number):
    choice = random.Random(f"{seed} {number}")
    while time.monotonic() < end:
        kind = choice.choice(kinds)
        visits = [
            lambda: stream(kind, devices={"device": f"{server}/{kind}"}), lambda: stream(kind), ask_target, ask_missing
        ]
        try:
            choice.choices(visits, [6, 4, 1, 1])[0]()
        except ServerBusy:
            # A session of a client that has just gone may not have ended yet.
            counts["busy"] += 1
        except Exception as error:
            counts[f"{type(error).__name__}: {error}"] += 1

visitors = [threading.Thread(target=visit, args=(number,)) for number in range(int(threads))]
for thread in visitors:
    thread.start()
for thread in visitors:
    thread.join()
print(dict(counts))
sys.exit(any(": " in text for text in counts))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of one stage for each runtime, a frame, and what each makes of it."""
    path = tmp_path_factory.mktemp("bundles")
    graph = pipeline.read(classifier(path / "net.tflite"))
    (spec,) = graph.inputs
    frame = np.random.default_rng(0).random(spec.shape, np.float32)
    np.save(path / "frame.npy", frame)
    for kind in KINDS:
        plan = pipeline.plan(graph, Board("one", (Device("device", kind),)), stages=1)
        pipeline.build(graph, plan, check=False).save(path / f"{kind}.bundle")
        with pipeline.load(path / f"{kind}.bundle") as running:
            np.save(path / f"{kind}.npy", running.submit(frame).result(60))
    return path


def run_crowd(
    server: Child, root: Path, folder: Path, kinds: Sequence[str], *, processes: int, threads: int, seconds: float
) -> None:
    """Let clients come and go, and check that the server outlives them, and that nothing failed."""
    address = server.address("").rstrip("/")
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", CLIENTS, str(folder), address, str(seconds), str(seed), str(threads), *kinds],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(processes)
    ]
    for client in clients:
        output, errors = client.communicate(timeout=seconds + 400)
        print(output, errors)
        assert (client.returncode, errors) == (0, ""), output
    assert server.process.poll() is None


def test_clients_load_at_once(serve: Callable[..., Child], root: Path, folder: Path) -> None:
    """A server died after 70 loads, or when it was asked for its target, or for a device that it has not."""
    server = serve("--bundles", folder)
    run_crowd(server, root, folder, ["cpu"], processes=1, threads=8, seconds=3)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_crowd_with_every_runtime(serve: Callable[..., Child], root: Path, folder: Path) -> None:
    server = serve("--bundles", folder)
    run_crowd(server, root, folder, KINDS, processes=4, threads=8, seconds=SECONDS)
