"""A bundle that was changed is refused, naming the part and the reason."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.executor import host_target
from pipeline.split.symbolic_model import OpenModel
from tests.support.bundles import PARTS, assert_refused, rewrite, run_fuzzer
from tests.support.onnx_models import node, save, weights


@pytest.mark.parametrize("part", [*PARTS, "manifest.json", "manifest.sha256"])
@pytest.mark.parametrize("position", [0.0, 0.31, 0.77, 1.0])
def test_one_changed_byte_is_found(bundle_copy: Path, part: str, position: float) -> None:
    path = bundle_copy / part
    data = bytearray(path.read_bytes())
    data[int(position * (len(data) - 1))] ^= 1
    path.write_bytes(data)
    assert_refused(bundle_copy, "manifest.json" if part.startswith("manifest") else part)


def test_a_changed_byte_anywhere_in_the_manifest_is_found(pristine: Path, tmp_path: Path) -> None:
    for name in ("manifest.json", "manifest.sha256"):
        data = (pristine / name).read_bytes()
        folder = tmp_path / name
        folder.mkdir()
        for byte in ("manifest.json", "manifest.sha256"):
            shutil.copyfile(pristine / byte, folder / byte)
        for position in range(0, len(data), max(1, len(data) // 60)):
            (folder / name).write_bytes(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
            assert_refused(folder, "manifest")


@pytest.mark.parametrize("part", [*PARTS, "manifest.json", "manifest.sha256"])
def test_a_truncated_part_is_found(bundle_copy: Path, part: str) -> None:
    data = (bundle_copy / part).read_bytes()
    (bundle_copy / part).write_bytes(data[:-1])
    assert_refused(bundle_copy, "manifest" if part.startswith("manifest") else part)


@pytest.mark.parametrize("part", [*PARTS, "manifest.json", "manifest.sha256"])
def test_a_missing_part_is_found(bundle_copy: Path, part: str) -> None:
    (bundle_copy / part).unlink()
    assert_refused(bundle_copy, part)


def test_two_exchanged_parts_are_found(bundle_copy: Path) -> None:
    data = (bundle_copy / "stage0.so").read_bytes()
    (bundle_copy / "stage0.so").write_bytes((bundle_copy / "stage2.so").read_bytes())
    (bundle_copy / "stage2.so").write_bytes(data)
    assert_refused(bundle_copy, "stage0.so")


@pytest.mark.parametrize("name", ["nowhere", "a file", "an empty folder"])
def test_what_is_no_bundle(tmp_path: Path, name: str) -> None:
    path = tmp_path / "no.bundle"
    if name == "a file":
        path.write_text("hello")
    elif name == "an empty folder":
        path.mkdir()
    assert_refused(path, "does not exist" if name == "nowhere" else "is not a bundle")


def test_a_newer_format_is_refused(bundle_copy: Path) -> None:
    def change(content: Any) -> None:
        content.clear()
        content.update(format=99, new="fields that this version does not know")

    rewrite(bundle_copy, change)
    assert_refused(bundle_copy, "manifest.json", "format 99, newer than 1", "upgrade soc-pipeline")


def test_a_newer_plan_is_refused(bundle_copy: Path) -> None:
    rewrite(bundle_copy, lambda content: content["plan"].update(format=99))
    assert_refused(bundle_copy, "manifest.json", "format 99")


def test_a_foreign_architecture_is_refused(bundle_copy: Path) -> None:
    byte = "aarch64" if host_target.machine() == "x86_64" else "x86_64"
    rewrite(bundle_copy, lambda content: content["stages"][1].update(machine=byte))
    assert_refused(
        bundle_copy, "stage1", "stage1.so", f"is built for {byte}, but this machine is {host_target.machine()}"
    )


@pytest.mark.skipif(not host_target.flags(), reason="this system does not tell what its processor has")
def test_an_extension_that_is_missing_here_is_refused(bundle_copy: Path) -> None:
    rewrite(bundle_copy, lambda content: content["stages"][2].update(features=["avx9000"]))
    assert_refused(bundle_copy, "stage2.so", "uses avx9000, which this processor does not have")


@pytest.mark.parametrize("name", ["../stage0.so", "/etc/passwd", "sub/stage0.so", "..", ".", "", "./stage0.so"])
@pytest.mark.parametrize("kind", ["library", "parameters"])
def test_parts_outside_of_the_folder_are_refused(bundle_copy: Path, name: str, kind: str) -> None:
    shutil.copyfile(bundle_copy / "stage0.so", bundle_copy.parent / "stage0.so")
    (bundle_copy / "sub").mkdir()
    shutil.copyfile(bundle_copy / "stage0.so", bundle_copy / "sub" / "stage0.so")
    rewrite(bundle_copy, lambda content: content["stages"][0][kind].update(file=name))
    assert_refused(bundle_copy, repr(name), "is missing")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content["stages"].pop(), "lists 2 of 3 stages"),
        (lambda content: content.pop("plan"), "is not valid"),
        (lambda content: content["plan"]["stages"].reverse(), "is not valid"),
        (lambda content: content["stages"][0].update(machine=7), "is not valid"),
        (lambda content: content["plan"]["stages"][0].update(device="gone"), "no device 'gone'"),
        (lambda content: content["stages"][0]["entries"][0].update(offset=1 << 40), "stage0.parameters"),
        (lambda content: content["stages"][0]["entries"][0].update(dtype="O"), "stage0.parameters"),
        (lambda content: content["stages"][0]["entries"][0].update(shape=[-1]), "stage0.parameters"),
    ],
)
def test_impossible_manifests_are_refused(bundle_copy: Path, change: Callable[[Any], None], words: str) -> None:
    rewrite(bundle_copy, change)
    assert_refused(bundle_copy, words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content["stages"][0]["entries"][0].update(offset=-4096), "at byte -4096 is not inside"),
        (lambda content: content["stages"][0]["entries"][0].update(shape=[1 << 62, 4]), "is not inside its"),
        (lambda content: content["stages"][0]["entries"][0].update(shape=[1] * 65), "is no shape"),
        (lambda content: content["stages"][0]["entries"][0].update(dtype="V99999999"), "is no type of numbers"),
        (lambda content: content["plan"]["stages"][0].update(queue_depth=10**9), "queue_depth is 1000000000"),
        (lambda content: content["plan"].update(in_flight=10**9), "1000000000 frames may be inside at once"),
        (lambda content: content["plan"]["stages"][0].update(replicas=10**9), "replicas is 1000000000"),
        (lambda content: content["plan"]["stages"][0].update(cores=[1 << 40]), "cores are"),
        (lambda content: content["plan"]["stages"][0].update(seconds=1e300), "seconds is 1e+300"),
        (lambda content: content["plan"]["stages"][0].update(transfer_s=-1), "transfer_s is -1"),
        (lambda content: content["plan"]["board"]["devices"][0].update(index=1 << 31), "index is 2147483648"),
        (lambda content: content["plan"]["inputs"][0].update(dtype="(2,"), "'(2,'"),
        (
            lambda content: content["plan"]["inputs"][0].update(shape=[1 << 40, 1 << 40]),
            "bytes; no machine has so many",
        ),
        (lambda content: content["numerics"].update(weights="int3"), "weights is 'int3'"),
        (lambda content: content.update(tvm="0.26.0"), "comes from TVM 0.26.0, but this machine has 0.27"),
        (lambda content: content.update(more=[{"plan": content["plan"], "stages": content["stages"]}]), "nothing that"),
        (lambda content: content.update(shapes={"inputs": {"gone": ["N"]}}), "not those of the inputs"),
    ],
)
def test_numbers_and_names_are_bounded(bundle_copy: Path, change: Callable[[Any], None], words: str) -> None:
    """Some of them ended in a segmentation fault, took all memory, or raised errors of other libraries."""
    rewrite(bundle_copy, change)
    assert_refused(bundle_copy, words)


@pytest.mark.parametrize("text", ["9" * 4301, "[" * 5000 + "]" * 5000, '"\\ud800"', '"\udcff"'])
def test_values_that_no_decoder_takes_are_refused(bundle_copy: Path, text: str) -> None:
    rewrite(bundle_copy, lambda content: content["plan"]["board"]["devices"][0].update(target={"kind": "@"}))
    data = (bundle_copy / "manifest.json").read_bytes().replace(b'"@"', text.encode("utf-8", "surrogateescape"))
    (bundle_copy / "manifest.json").write_bytes(data)
    (bundle_copy / "manifest.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  manifest.json\n")
    assert_refused(bundle_copy, "manifest.json")


@pytest.mark.parametrize("part", ["manifest.json", "manifest.sha256", "stage0.so", "stage0.parameters"])
@pytest.mark.parametrize("obstacle", ["a pipe", "a device", "a folder", "a link to a device"])
def test_what_is_no_file_is_neither_waited_for_nor_read(bundle_copy: Path, part: str, obstacle: str) -> None:
    (bundle_copy / part).unlink()
    if obstacle == "a pipe":
        os.mkfifo(bundle_copy / part)
    elif obstacle == "a folder":
        (bundle_copy / part).mkdir()
    elif obstacle == "a link to a device":
        (bundle_copy / part).symlink_to("/dev/zero")
    else:
        try:
            os.mknod(bundle_copy / part, stat.S_IFCHR | 0o666, Path("/dev/zero").stat().st_rdev)
        except PermissionError:
            pytest.skip("only the administrator makes devices")
    assert_refused(bundle_copy, part, "it is no regular file")


def test_a_manifest_without_end_is_not_read(bundle_copy: Path) -> None:
    with (bundle_copy / "manifest.json").open("r+b") as stream:
        stream.truncate(1 << 40)
    assert_refused(bundle_copy, "manifest.json", "1099511627776 bytes")


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle for several sizes, in two stages."""
    folder = tmp_path_factory.mktemp("sizes")
    nodes = [node("Conv", "x w", "r", pads=[1] * 4), node("Conv", "r w", "y", pads=[1] * 4)]
    path = save(folder / "open.onnx", nodes, {"x": ["N", 4, 6, 6]}, ["y"], {"w": weights(4, 4, 3, 3)})
    model = pipeline.read(path, {"x": ["N", 4, 6, 6]})
    assert isinstance(model, OpenModel)
    plan = pipeline.plan(model.at(N=1), Board("two", (Device("a"), Device("b"))), cuts=["r"], devices=["a", "b"])
    bundle = pipeline.build(model, plan, sizes=[{"N": 2}, {"N": 4}], other_sizes="pad", check=False)
    bundle.save(folder / "open.bundle")
    return folder / "open.bundle"


def test_changed_manifests_with_fitting_checksums(sizes: Path, tmp_path: Path, root: Path) -> None:
    run_fuzzer(root, "manifest_fuzzer", sizes, tmp_path / "changed.bundle", range(60))


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_many_changed_manifests_with_fitting_checksums(sizes: Path, tmp_path: Path, root: Path) -> None:
    run_fuzzer(root, "manifest_fuzzer", sizes, tmp_path / "changed.bundle", range(1000, 5000))
