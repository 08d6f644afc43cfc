"""Signed bundles: who may have made one, and what becomes of others."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.cli import main
from pipeline.core.board.board import Board, Device
from pipeline.errors import ArgumentError, BundleError, InputError, PipelineError
from pipeline.executor.bundle import Bundle
from pipeline.executor.signature import SIGNATURE, SignedManifest, sign, verify
from tests.support.system_tools import SIGNATURES

pytestmark = pytest.mark.skipif(bool(SIGNATURES), reason=SIGNATURES)


def make_key(path: Path) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "somebody", "-f", str(path)]
    subprocess.run(command, check=True, timeout=60)
    return path


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("friend", "stranger"):
        make_key(folder / name)
    public = (folder / "friend.pub").read_text()
    (folder / "allowed").write_text(f"friend@example.org {public}")
    (folder / "ended").write_text(f'friend@example.org valid-before="20200101" {public}')
    (folder / "for-git").write_text(f'friend@example.org namespaces="git" {public}')
    (folder / "nobody").write_text("")
    return folder


@pytest.fixture(scope="module")
def built(small_onnx: Path) -> Bundle:
    graph = pipeline.read(small_onnx)
    return pipeline.build(graph, pipeline.plan(graph, Board("b", (Device("cpu"),)), stages=1), check=False)


@pytest.fixture(scope="module")
def signed(built: Bundle, keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "signed.bundle"
    built.save(path, sign=keys / "friend")
    return path


def test_a_signed_bundle_is_loaded(signed: Path, keys: Path) -> None:
    # No folder for temporary files need be there.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", "/nonexistent")
        bundle = Bundle.load(signed, require_signature=keys / "allowed")
    assert bundle.codes[0].signed is not None
    assert Bundle.load(signed).plan == bundle.plan
    with pipeline.load(signed, require_signature=str(keys / "allowed")) as running:
        spec = bundle.plan.inputs[0]
        assert running.submit(np.zeros(spec.shape, spec.dtype)).outputs()


@pytest.mark.parametrize(
    ("allowed", "reason"),
    [
        ("nobody", "its signer is not in that file"),
        ("ended", "its signer is not in that file, or no longer"),
        ("for-git", "signed by nobody"),
    ],
)
def test_others_are_refused(signed: Path, keys: Path, allowed: str, reason: str) -> None:
    with pytest.raises(BundleError, match=reason):
        Bundle.load(signed, require_signature=keys / allowed)


def test_what_was_changed_is_refused(signed: Path, keys: Path, tmp_path: Path) -> None:
    copy = tmp_path / "changed.bundle"
    shutil.copytree(signed, copy)
    manifest = (copy / "manifest.json").read_bytes().replace(b'"queue_depth": ', b'"queue_depth": 1')
    (copy / "manifest.json").write_bytes(manifest)
    # Whoever changes it makes its checksum anew, too.
    checksum = subprocess.run(["sha256sum", "manifest.json"], cwd=copy, check=True, capture_output=True, timeout=60)
    (copy / "manifest.sha256").write_bytes(checksum.stdout)
    with pytest.raises(BundleError, match="its signature is of something else"):
        Bundle.load(copy, require_signature=keys / "allowed")
    (copy / SIGNATURE).write_bytes(b"nonsense")
    with pytest.raises(BundleError, match="signed by nobody whom"):
        Bundle.load(copy, require_signature=keys / "allowed")
    (copy / SIGNATURE).unlink()
    with pytest.raises(BundleError, match=r"is not signed; build it with '--sign KEY'"):
        Bundle.load(copy, require_signature=keys / "allowed")


def test_a_strangers_signature_is_refused(built: Bundle, keys: Path, tmp_path: Path) -> None:
    built.save(tmp_path / "b.bundle", sign=keys / "stranger")
    with pytest.raises(BundleError, match="its signer is not in that file"):
        Bundle.load(tmp_path / "b.bundle", require_signature=keys / "allowed")


def test_a_bundle_that_is_saved_again_loses_its_signature(signed: Path, keys: Path, tmp_path: Path) -> None:
    shutil.copytree(signed, tmp_path / "b.bundle")
    Bundle.load(signed).save(tmp_path / "b.bundle")
    assert not (tmp_path / "b.bundle" / SIGNATURE).exists()


def test_a_signature_is_for_bundles_alone(keys: Path) -> None:
    data = b"something else"
    command = ["ssh-keygen", "-Y", "sign", "-f", str(keys / "friend"), "-n", "file"]
    other = subprocess.run(command, input=data, capture_output=True, check=True, timeout=60).stdout
    with pytest.raises(BundleError, match="signed by nobody whom"):
        verify(SignedManifest(data, other), keys / "allowed")
    assert verify(SignedManifest(data, sign(data, keys / "friend")), keys / "allowed") == "friend@example.org"


def test_what_is_missing_is_named(keys: Path, signed: Path, built: Bundle, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no key"):
        built.save(tmp_path / "b.bundle", sign=tmp_path / "none")
    assert not (tmp_path / "b.bundle").exists()
    (tmp_path / "bad").write_text("no key")
    with pytest.raises(InputError, match="cannot sign with"):
        sign(b"", tmp_path / "bad")
    with pytest.raises(InputError, match=r"there is no file .* of allowed signers"):
        Bundle.load(signed, require_signature=keys / "none")
    with pytest.raises(ArgumentError, match="one in memory has no signature"):
        pipeline.load(built, require_signature=keys / "allowed")


def test_the_commands(small_onnx: Path, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "b.bundle"
    line = ["build", str(small_onnx), "--stages", "1", "--no-verify", "-o", str(path), "--sign"]
    assert main([*line, str(keys / "none")]) == 2
    assert "there is no key" in capsys.readouterr().err
    assert main([*line, str(keys / "stranger")]) == 0
    np.save(tmp_path / "x.npy", np.zeros(1, np.float32))
    status = main(["run", str(path), "--input", str(tmp_path / "x.npy"), "--require-signature", str(keys / "allowed")])
    assert status == 2
    assert "its signer is not in that file" in capsys.readouterr().err


def test_every_command_that_runs_a_bundle_may_ask_who_signed_it(
    signed: Path, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "node.yaml"
    topics = "subscribe: {topic: /in}\npublish: [{topic: /out, type: std_msgs/msg/Float32MultiArray}]\n"
    config.write_text(f"bundle: {signed}\n{topics}")
    lines = {
        "bench": ["bench", str(signed), "--frames", "2", "--rounds", "1"],
        "serve": ["serve", "--port", "0", "--run", str(signed)],
    }
    if find_spec("yaml"):
        lines["node"] = ["node", "--config", str(config)]
    for name, line in lines.items():
        assert main([*line, "--require-signature", str(keys / "nobody")]) == 2, name
        assert "its signer is not in that file" in capsys.readouterr().err
    assert main([*lines["bench"], "--require-signature", str(keys / "allowed")]) == 0
    assert main(["bench", "model.onnx", "--require-signature", str(keys / "allowed")]) == 2
    assert "is a model, and is built here" in capsys.readouterr().err


@pytest.fixture
def serve(root: Path) -> Any:
    from tests.remote.conftest import Child

    children: list[Child] = []

    def start(*options: object) -> Child:
        children.append(Child(root, *options))
        return children[-1]

    yield start
    for child in children:
        child.kill()


@pytest.mark.parametrize("keeper", ["--bundles", "--accept-uploads"])
def test_a_server_that_asks_for_signatures(  # noqa: PLR0917 - fixtures
    serve: Callable[..., Any], built: Bundle, signed: Path, keys: Path, tmp_path: Path, keeper: str
) -> None:
    unsigned, strange = tmp_path / "unsigned", tmp_path / "strange"
    built.save(unsigned)
    built.save(strange, sign=keys / "stranger")
    options: list[object] = ["--uploads", tmp_path / "uploads"] if keeper == "--accept-uploads" else []
    folders = {path: [keeper, path] if keeper == "--bundles" else [keeper] for path in (unsigned, strange, signed)}
    for path, folder in folders.items():
        child = serve("--require-signature", keys / "allowed", *folder, *options)
        devices = {"cpu": child.address("cpu", "?timeout=20")}
        if path == signed:
            with pipeline.load(path, devices=devices) as running:
                spec = running.plan.inputs[0]
                assert running.submit(np.zeros(spec.shape, spec.dtype)).outputs()
        else:
            with pytest.raises(
                PipelineError, match=r"is of no signed bundle|signed by nobody whom|not in this server's"
            ):
                pipeline.load(path, devices=devices)
