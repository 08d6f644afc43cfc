"""Whole bundles that a server runs as one program: one round trip per frame, also in pools, and new versions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.cli import main
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.errors import BoardError, DeviceLost, PipelineError, StageError
from pipeline.executor.bundle import Bundle
from tests.remote.conftest import LIMIT, Child
from tests.support.onnx_models import node, save

Serve = Callable[..., Child]


def build(folder: Path, name: str, factor: float = 2.0, extents: int = 8) -> Path:
    """A bundle of two stages that multiplies twice."""
    model = save(
        folder / f"{name}.onnx",
        [node("Mul", "x w", "t"), node("Mul", "t w", "y")],
        {"x": (1, extents)},
        ["y"],
        {"w": np.array([factor], np.float32)},
    )
    graph = pipeline.read(model)
    bundle = pipeline.build(graph, pipeline.plan(graph, cuts=["t"], allow_unfused=True))
    path = folder / f"{name}.bundle"
    bundle.save(path)
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("served"), "model")


def frame(number: int) -> np.ndarray:
    return np.full((1, 8), number, np.float32)


def address(server: Child, options: str = "") -> str:
    return server.address("bundle", options)


def test_a_frame_passes_all_stages_in_one_round_trip(serve: Serve, path: Path) -> None:
    server = serve("--run", path)
    with pipeline.load(path, server=address(server)) as running:
        results = list(running.map(frame(number) for number in range(40)))
        statistics = running.statistics()
    assert [result[0, 0] for result in results] == [4.0 * number for number in range(40)]
    assert [stage.name for stage in statistics.stages] == ["bundle"]
    # Two replicas for each frame that the two stages there work on at once.
    assert statistics.stages[0].replicas == 4


def test_a_frame_that_fails_there_fails_alone(serve: Serve, tmp_path: Path) -> None:
    tensors = TensorSpec("x", (4,)), TensorSpec("y", (4,))
    # Of what computes nothing, so that the two may not fit each other.
    stage = StagePlan("s", "d", tensors[:1], tensors[1:])
    local = Bundle(Plan("m", "", Board("b", (Device("d", "null"),)), tensors[:1], tensors[1:], (stage,)), [None])
    local.save(tmp_path / "null.bundle")
    server = serve("--run", tmp_path / "null.bundle")
    wide = StagePlan("s", "d", (TensorSpec("x", (5,)),), (TensorSpec("y", (5,)),))
    other = Bundle(Plan("m", "", local.plan.board, wide.inputs, wide.outputs, (wide,)), [None])
    with pipeline.load(other, server=address(server)) as running:
        for _ in range(2):
            with pytest.raises(StageError, match=r"x.*\[5\]|\(5,\)"):
                running.submit(np.zeros(5, np.float32)).result(LIMIT)
    with pipeline.load(local, server=address(server)) as running:
        assert running.submit(np.ones(4, np.float32)).result(LIMIT).sum() == 4


def test_servers_in_a_pool_share_the_frames_of_a_bundle(serve: Serve, path: Path) -> None:
    servers = [serve("--run", path) for _ in range(2)]
    members = ",".join(address(server, "?timeout=1") for server in servers)
    with pipeline.load(path, server=f"pool:{members}") as running:
        futures = [running.submit(frame(number)) for number in range(50)]
        servers[0].kill()
        futures += [running.submit(frame(number)) for number in range(50, 150)]
        assert [future.result(LIMIT)[0, 0] for future in futures] == [4.0 * number for number in range(150)]


def test_versions_of_a_bundle_never_mix_in_one_stream(serve: Serve, path: Path, tmp_path: Path) -> None:
    """A pool in the middle of a rolling update gave results of both, and said nothing."""
    second = build(tmp_path, "second", 3.0)
    servers = [serve("--run", version) for version in (second, path, second)]
    pool = "pool:" + ",".join(address(server, "?timeout=1") for server in servers)
    with pipeline.load(path, server=pool) as running:
        # The version whose manifest is here, although most have the other one.
        assert {float(result[0, 0]) for result in running.map(frame(1) for _ in range(60))} == {4.0}
        servers[1].kill()
        results = [float(result[0, 0]) for result in running.map(frame(1) for _ in range(60))]
    assert results == sorted(results)
    assert results[-1] == 9.0


def test_what_is_no_such_server_is_named(serve: Serve, path: Path, tmp_path: Path) -> None:
    with pytest.raises(BoardError, match=r"runs no whole bundle; write it like remote://.*/bundle"):
        pipeline.load(path, server="remote://127.0.0.1:9/cpu")
    with pytest.raises(PipelineError, match="leave out what else says them"):
        pipeline.load(path, server="remote://127.0.0.1:9/bundle", devices={"cpu": "cpu"})
    with pytest.raises(DeviceLost, match="this server runs no whole bundle; start it with 'serve --run BUNDLE'"):
        pipeline.load(path, server=address(serve()))
    renamed = save(tmp_path / "other.onnx", [node("Relu", "a", "b")], {"a": (1, 8)}, ["b"])
    graph = pipeline.read(renamed)
    other = pipeline.build(graph, pipeline.plan(graph, stages=1))
    with pytest.raises(DeviceLost, match=r"another one: its inputs are x: float32\[1, 8\], not a: float32\[1, 8\]"):
        pipeline.load(other, server=address(serve("--run", path)))


def test_a_server_takes_new_versions_and_loses_no_frame(serve: Serve, path: Path, tmp_path: Path) -> None:
    versions = tmp_path / "versions"
    versions.mkdir()
    server = serve("--run", path, "--watch", versions, "--most-slower", 1000)
    with pipeline.load(path, server=address(server)) as running:

        def stream_until(factor: float) -> None:
            deadline = time.monotonic() + LIMIT
            while (seen := float(running.submit(frame(1)).result(LIMIT)[0, 0])) != factor:
                # The one before, and nothing else.
                assert seen in {4.0, 9.0}
                assert time.monotonic() < deadline

        build(tmp_path, "second", 3.0)
        damaged = build(tmp_path, "third", 5.0)
        library = next(damaged.glob("*.so"))
        os.truncate(library, library.stat().st_size // 2)
        # Names that are there at once are complete.
        (tmp_path / "third.bundle").rename(versions / "v2")
        (tmp_path / "second.bundle").rename(versions / "v3")
        stream_until(9.0)
        assert {float(result[0, 0]) for result in running.map(frame(1) for _ in range(50))} == {9.0}
        assert running.statistics().failed == 0


def test_the_command_streams_through_a_server(
    serve: Serve, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve("--run", path)
    np.save(tmp_path / "frames.npy", np.stack([frame(1), frame(2)]))
    line = ["run", str(path), "--server", address(server), "--input", str(tmp_path / "frames.npy")]
    assert main([*line, "--sink", str(tmp_path / "out.npz")]) == 0, capsys.readouterr().err
    with np.load(tmp_path / "out.npz") as outputs:
        assert outputs["y"][:, 0, 0].tolist() == [4.0, 8.0]
    # Clients decode what comes back.
    capsys.readouterr()
    assert main([*line, "--decode", "classes:top=1"]) == 0
    assert capsys.readouterr().out.startswith("frames-000000: class ")
    assert main([*line, "--device", "cpu=cpu"]) == 2
    assert "--server leaves --device, --watch and --compile to the servers" in capsys.readouterr().err
