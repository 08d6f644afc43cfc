"""Stages with code on a server: from its folder of bundles, or uploaded once."""

import dataclasses
import platform
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.remote_address import Address
from pipeline.errors import BuildError, DeviceLost, PipelineError
from pipeline.executor import manifest
from pipeline.executor.bundle import Bundle
from pipeline.executor.manifest import StageFiles
from pipeline.executor.parameters import ParameterEntry
from pipeline.executor.verified_file import BundleFile
from pipeline.remote import stage_package
from pipeline.remote.connection import Connection, ServerRefusal
from pipeline.remote.store import FileStore
from pipeline.split.graph import Graph
from pipeline.split.symbolic_model import OpenModel
from tests.remote.conftest import Child
from tests.support.bundles import rewrite
from tests.support.onnx_models import node, save, weights

pytestmark = pytest.mark.thorough

LIMIT = 60.0


@pytest.fixture(scope="session")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    nodes = [
        node("Conv", "x w b", "c", pads=[1] * 4),
        node("Relu", "c", "r"),
        node("Conv", "r w", "d", pads=[1] * 4),
        node("Concat", "d r", "y", axis=1),
    ]
    constants = {"w": weights(4, 4, 3, 3), "b": weights(4)}
    path = save(tmp_path_factory.mktemp("model") / "little.onnx", nodes, {"x": (1, 4, 6, 6)}, ["y"], constants)
    return pipeline.read(path)


def test_a_package_is_the_bundles_own_files(graph: Graph, tmp_path: Path) -> None:
    """Two parameters of one stage are equal, and lie in the bundle's file once."""
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1), check=False)
    (code,) = bundle.codes
    name, array = next((name, array) for name, array in code.parameters.items() if array.size > 1)
    duplicate_code = code.with_parameters({f"{name} again": array.copy()})
    Bundle(bundle.plan, [duplicate_code]).save(tmp_path / "little.bundle")
    (bundle_path,) = manifest.read(tmp_path / "little.bundle").stages
    assert bundle_path is not None
    assert stage_package.pack_stage(duplicate_code).stage.parameters.sha256 == bundle_path.parameters.sha256
    assert stage_package.pack_stage(duplicate_code).stage.entries == bundle_path.entries


TARGET = {"kind": "llvm", "mtriple": f"{platform.machine()}-linux-gnu"}
"""Of any processor like this one: asking the server takes seconds."""


def build_for(graph: Graph, address: str, target: Any = TARGET, **options: Any) -> Bundle:
    board = Board("two machines", (Device("here"), Device("there", "remote", address=address, target=target)))
    return pipeline.build(graph, pipeline.plan(graph, board, cuts=["r"], devices=["here", "there"]), **options)


@pytest.fixture(scope="session")
def reference(graph: Graph) -> Callable[[np.ndarray], np.ndarray]:
    unsplit = pipeline.build(graph, pipeline.plan(graph, stages=1), check=False)

    def compute(x: np.ndarray) -> np.ndarray:
        with pipeline.load(unsplit) as running:
            return np.asarray(running.submit(x).result(LIMIT))

    return compute


def frame(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((1, 4, 6, 6), np.float32)


def where(server: Child) -> str:
    return server.address("cpu", "?timeout=30&patience=0")


def test_a_stage_is_built_for_the_server_and_uploaded_once(
    graph: Graph, serve: Callable[..., Child], tmp_path: Path, reference: Any
) -> None:
    uploads = tmp_path / "uploads"
    server = serve("--accept-uploads", "--uploads", uploads)
    bundle = build_for(graph, where(server), target=None)
    assert bundle.parity is not None
    for _ in range(2):
        with pipeline.load(bundle) as running:
            for number in range(3):
                result = running.submit(frame(number)).result(LIMIT)
                np.testing.assert_allclose(result, reference(frame(number)), rtol=1e-5, atol=1e-5)
        files = {path.name: path.stat().st_ino for path in uploads.iterdir()}
        assert sorted(Path(name).suffix for name in files) == [".parameters", ".so"]
        server.restart()
    assert {path.name: path.stat().st_ino for path in uploads.iterdir()} == files


def test_a_saved_bundle_runs_on_a_server_that_has_it(
    graph: Graph, serve: Callable[..., Child], tmp_path: Path, reference: Any
) -> None:
    """The server takes no uploads, and gets the bundle while it runs."""
    server = serve("--bundles", tmp_path)
    bundle = build_for(graph, where(server), check=False)
    with pytest.raises(
        ServerRefusal, match="not in this server's folder of bundles, and it takes no uploads; copy the bu"
    ):
        pipeline.load(bundle)
    bundle.save(tmp_path / "little.bundle")
    with pipeline.load(tmp_path / "little.bundle") as running:
        np.testing.assert_allclose(running.submit(frame(0)).result(LIMIT), reference(frame(0)), rtol=1e-5, atol=1e-5)
    library = tmp_path / "little.bundle" / "stage1.so"
    new_path = shutil.copytree(
        tmp_path / "little.bundle", tmp_path.with_name(f"{tmp_path.name}-mine") / "little.bundle"
    )
    library.write_bytes(library.read_bytes()[:-1] + b"!")
    with pytest.raises(DeviceLost, match="not in this server's folder"):
        pipeline.load(new_path)


def test_a_bundle_for_several_sizes_runs_on_a_server_that_has_it(
    serve: Callable[..., Child], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The builds share one file, in which each has parameters that the other one does not read."""
    monkeypatch.setenv("SOC_PIPELINE_CACHE", str(tmp_path / "cache"))
    nodes = [node("Conv", "x w", "r", pads=[1] * 4), node("Conv", "r w", "y", pads=[1] * 4)]
    path = save(tmp_path / "open.onnx", nodes, {"x": ["N", 4, 6, 6]}, ["y"], {"w": weights(4, 4, 3, 3)})
    server = serve("--bundles", tmp_path)
    model = pipeline.read(path, {"x": ["N", 4, 6, 6]})
    assert isinstance(model, OpenModel)
    board = Board("two machines", (Device("here"), Device("there", "remote", address=where(server), target=TARGET)))
    plan = pipeline.plan(model.at(N=1), board, cuts=["r"], devices=["here", "there"])
    new_bundle = pipeline.build(model, plan, other_sizes="symbolic", check=False)
    new_bundle.save(tmp_path / "open.bundle")
    bundle_path = Bundle.load(tmp_path / "open.bundle")
    uploads = {stage_package.pack_stage(build.codes[1]).stage.parameters.sha256 for build in bundle_path.builds}
    assert len(uploads) == 1
    assert uploads != {stage_package.pack_stage(build.codes[1]).stage.parameters.sha256 for build in new_bundle.builds}
    with pipeline.load(tmp_path / "open.bundle") as running:
        for size in (1, 3):
            assert running.submit(np.ones((size, 4, 6, 6), np.float32)).result(LIMIT).shape == (size, 4, 6, 6)
    code = bundle_path.codes[1]
    zeros = code.with_parameters({name: np.zeros_like(value) for name, value in code.parameters.items()})
    assert stage_package.pack_stage(zeros).stage.parameters.sha256 not in uploads


def test_set_params_sends_the_parameters_only(graph: Graph, serve: Callable[..., Child], tmp_path: Path) -> None:
    server = serve("--accept-uploads", "--uploads", tmp_path)
    bundle = build_for(graph, where(server), check=False)
    with pipeline.load(bundle) as running:
        original_result = running.submit(frame(0)).result(LIMIT)
        (name, *_) = (name for name, value in bundle.codes[1].parameters.items() if value.any())
        running.set_params("stage1", {name: np.zeros_like(bundle.codes[1].parameters[name])})
        new_result = running.submit(frame(0)).result(LIMIT)
    assert not np.array_equal(original_result, new_result)
    assert len(list(tmp_path.glob("*.parameters"))) == 2


def test_a_frame_of_the_wrong_shape_is_the_stages_error(
    graph: Graph, serve: Callable[..., Child], tmp_path: Path
) -> None:
    server = serve("--accept-uploads", "--uploads", tmp_path)
    bundle = build_for(graph, where(server), check=False)
    stage, code = bundle.plan.stages[1], bundle.codes[1]
    connection = Connection(Address("remote", "127.0.0.1", server.port, timeout=30.0))
    number = connection.open(stage, code)
    with pytest.raises(PipelineError, match=r"/cpu: \w+Error: "):
        connection.run(number, stage, [np.zeros((1, 4, 6, 7), np.float32)])
    assert connection.run(number, stage, [np.zeros((1, 4, 6, 6), np.float32)])[0].shape == (1, 8, 6, 6)
    connection.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"machine": "vax"}, "is built for vax, but this machine is"),
        ({"features": ("no_such_flag",)}, "uses no_such_flag, which this processor does not have"),
    ],
)
def test_code_for_another_machine_is_refused(graph: Graph, server: Child, change: Any, reason: str) -> None:
    bundle = build_for(graph, where(server), check=False)
    code = bundle.codes[1]
    assert code is not None
    package = stage_package.pack_stage(code)
    changed_stage = msgspec.structs.replace(package.stage, **change)
    connection = Connection(Address("remote", "127.0.0.1", server.port, timeout=30.0))
    with pytest.raises(ServerRefusal, match=reason):
        connection.open_package(bundle.plan.stages[1], dataclasses.replace(package, stage=changed_stage))


def test_another_tvm_is_refused(server: Child, graph: Graph) -> None:
    bundle = build_for(graph, where(server), check=False)
    ours = Connection(Address("remote", "127.0.0.1", server.port, timeout=30.0))
    package = stage_package.pack_stage(bundle.codes[1])
    with pytest.raises(
        ServerRefusal, match=r"comes from TVM 0\.26\.1, but this machine has 0\.27.*; install the same on both"
    ):
        ours.open_package(bundle.plan.stages[1], package, built_with="0.26.1")


def test_a_bundle_for_the_server_loads_where_it_could_not_run(graph: Graph, server: Child, tmp_path: Path) -> None:
    def for_a_vax(manifest: Any, number: int) -> None:
        manifest["stages"][number]["machine"] = "vax"

    build_for(graph, where(server), check=False).save(tmp_path / "far.bundle")
    rewrite(tmp_path / "far.bundle", lambda manifest: for_a_vax(manifest, 1))
    assert Bundle.load(tmp_path / "far.bundle").codes[1].machine == "vax"
    rewrite(tmp_path / "far.bundle", lambda manifest: for_a_vax(manifest, 0))
    with pytest.raises(PipelineError, match=r"stage0.*is built for vax"):
        Bundle.load(tmp_path / "far.bundle")


def test_whoever_cannot_be_asked_needs_a_target_in_the_board(graph: Graph) -> None:
    with pytest.raises(DeviceLost, match="nothing listens"):
        build_for(graph, "remote://127.0.0.1:1/cpu", target=None)
    with pytest.raises(BuildError, match=r"rpc://127.0.0.1:1/cpu cannot be asked for its target; write it into the"):
        build_for(graph, "rpc://127.0.0.1:1/cpu", target=None)


def test_a_package_has_the_checksums_of_the_bundle(graph: Graph, tmp_path: Path) -> None:
    pipeline.build(graph, pipeline.plan(graph, cuts=["r"]), check=False).save(tmp_path / "little.bundle")
    reloaded = Bundle.load(tmp_path / "little.bundle")
    for number, code in enumerate(reloaded.codes):
        assert code is not None
        stage = stage_package.pack_stage(code).stage
        assert (
            stage.library.sha256
            == stage_package.describe_pieces("", [memoryview(_file(tmp_path, f"{number}.so"))]).sha256
        )
        assert (
            stage.parameters.sha256
            == stage_package.describe_pieces("", [memoryview(_file(tmp_path, f"{number}.par"))]).sha256
        )


def _file(folder: Path, suffix: str) -> bytes:
    (path,) = (folder / "little.bundle").glob(f"*{suffix}*")
    return path.read_bytes()


def test_a_store_keeps_to_its_room(tmp_path: Path) -> None:
    store = FileStore(uploads=tmp_path, largest=500, room=1000)
    parts = [stage_package.describe_pieces("", [memoryview(bytes([number]) * 400)]) for number in range(3)]
    for number, part in enumerate(parts):
        store.receive(part, ".so", [memoryview(bytes([number]) * 400)])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{part.sha256}.so" for part in parts[1:])
    empty_file = stage_package.describe_pieces("", [])
    contents = store.find(StageFiles(parts[2], empty_file, (), "", ()))
    assert contents.library is not None
    assert (contents.library.sha256, contents.parameters) == (parts[2].sha256, None)
    with pytest.raises(PipelineError, match="a file of 600 bytes is more than this server takes"):
        store.receive(BundleFile("", 600, "0" * 64), ".so", [])
    with pytest.raises(PipelineError, match="arrived damaged"):
        store.receive(BundleFile("", 3, "0" * 64), ".so", [memoryview(b"abc")])
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"library": BundleFile("x", 3, "../../secret")}, "a file whose SHA-256 is none"),
        ({"entries": (ParameterEntry("w", "O", (2,), 0),)}, "parameters of something else than numbers"),
    ],
)
def test_what_a_client_says_of_files_is_checked(graph: Graph, server: Child, change: Any, reason: str) -> None:
    test_code_for_another_machine_is_refused(graph, server, change, reason)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"offset": 1 << 40}, r"at byte 1099511627776 is not inside its \d+ bytes"),
        ({"offset": -64}, r"at byte -64 is not inside its \d+ bytes"),
        ({"shape": (1 << 62, 4)}, r"float32\[4611686018427387904, 4\] at byte 0 is not inside its \d+ bytes"),
        ({"shape": (-4,)}, r"\[-4\] is no shape"),
        ({"shape": (1,) * 65}, "is no shape"),
    ],
)
def test_parameters_beyond_their_upload_are_refused(
    graph: Graph, serve: Callable[..., Child], tmp_path: Path, change: Any, place: str
) -> None:
    server = serve("--accept-uploads", "--uploads", tmp_path)
    bundle = build_for(graph, where(server), check=False)
    package = stage_package.pack_stage(bundle.codes[1])
    first, *others = package.stage.entries
    entries = (msgspec.structs.replace(first, **change), *others)
    changed_stage = msgspec.structs.replace(package.stage, entries=entries)
    connection = Connection(Address("remote", "127.0.0.1", server.port, timeout=30.0))
    with pytest.raises(
        ServerRefusal, match=rf"does not hold the array '{re.escape(first.name)}': .*{place}"
    ) as refusal:
        connection.open_package(bundle.plan.stages[1], dataclasses.replace(package, stage=changed_stage))
    assert len(str(refusal.value).splitlines()) == 1
    # The files themselves are right, and the server goes on.
    with pipeline.load(bundle) as running:
        assert running.submit(frame(0)).result(LIMIT).shape == (1, 8, 6, 6)


def test_of_a_bundles_stage_the_bundle_is_believed(graph: Graph, tmp_path: Path) -> None:
    """A client cannot let a server run code that its processor does not have the instructions for."""
    build_for(graph, "remote://127.0.0.1:1/cpu", check=False).save(tmp_path / "little.bundle")
    stage = manifest.read(tmp_path / "little.bundle").stages[1]
    assert stage is not None
    lie = msgspec.structs.replace(stage, machine="vax", features=("none",), entries=())
    for folder in (tmp_path, tmp_path / "little.bundle"):
        assert FileStore(folder).find(lie).stage == stage
    assert None in FileStore(tmp_path / "little.bundle").find(msgspec.structs.replace(lie, library=stage.parameters))
