"""A server whose cores are of one kind gets the code for that kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.remote_address import Address
from pipeline.executor.stage_code import StageCode
from pipeline.remote.connection import Connection
from pipeline.remote.device_threads import ServerDevices
from pipeline.remote.offer import Offer
from pipeline.remote.server import Server
from pipeline.remote.store import FileStore
from pipeline.split.graph import Graph
from tests.remote.conftest import in_thread
from tests.support.onnx_models import node, save, weights

LIMIT = 60.0


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    constants = {"w": weights(4, 4, 3, 3)}
    return pipeline.read(save(tmp_path / "m.onnx", [node("Conv", "x w", "y")], {"x": (1, 4, 6, 6)}, ["y"], constants))


def family(code: StageCode) -> StageCode:
    """Return a stage with a variant that answers with twice as much, so that answers tell which one was run."""
    variant = code.with_parameters({name: array * 2 for name, array in code.parameters.items()})
    variant.processor = "little"
    return code.with_parameters({}, [variant])


@pytest.mark.parametrize(("core", "factor"), [("little", 2), ("big", 1), ("", 1)])
def test_a_server_gets_the_code_of_its_cores(graph: Graph, tmp_path: Path, core: str, factor: int) -> None:
    bundle = pipeline.build(graph, pipeline.plan(graph, Board("one", (Device("cpu"),)), stages=1), check=False)
    code = family(bundle.codes[0])
    stage = replace(bundle.plan.stages[0], cores=())
    offer = Offer(FileStore(None, tmp_path / "uploads"), ServerDevices(()), (), core=core)
    with in_thread(Server("127.0.0.1", 0, offer)) as server:
        connection = Connection(Address("remote", "127.0.0.1", server.port, timeout=LIMIT))
        assert connection.welcome.core == core
        frame = np.random.default_rng(0).standard_normal((1, 4, 6, 6)).astype(np.float32)
        (result,) = connection.run(connection.open(stage, code), stage, [frame])
        connection.close()
    with pipeline.load(bundle) as running:
        expected = running.submit(frame).result()
    np.testing.assert_allclose(result, factor * expected, rtol=1e-5, atol=1e-5)
