from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.core.tensor_quantization import Quantization
from pipeline.errors import InputError, MissingExtra
from pipeline.io.sources import files
from pipeline.io.sources.base import SourceOptions
from pipeline.io.sources.registry import open_source
from pipeline.picture.geometry import fit
from tests.support import pictures

GREY, COLOUR = TensorSpec("image", (1, 1, 2, 3)), TensorSpec("image", (1, 3, 2, 3))
BYTES = TensorSpec("image", (1, 1, 2, 3), "uint8")
PAIR = (TensorSpec("left", (2,)), TensorSpec("right", (2,)))


def read(path: Path, *specs: TensorSpec) -> list[Any]:
    with files.Files([path], specs) as source:
        return [(frame.name, frame.inputs) for frame in source]


def test_a_folder_stands_for_its_readable_files_by_name(tmp_path: Path) -> None:
    for name in ("b.npy", "a.NPZ", "c.txt", "d.PNG"):
        (tmp_path / name).touch()
    assert [path.name for path in files.find([tmp_path, tmp_path / "b.npy"])] == ["a.NPZ", "b.npy", "d.PNG", "b.npy"]


@pytest.mark.parametrize(
    ("name", "message"), [("missing.npy", "no input at"), ("c.txt", "supported are .npy"), ("empty", "has no inputs")]
)
def test_what_stands_for_nothing_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "c.txt").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=message):
        files.find([tmp_path / name])


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_is_one_frame_or_several(tmp_path: Path, order: Any) -> None:
    stack = np.asarray(np.arange(12, dtype=np.float32).reshape(2, 1, 1, 2, 3), order=order)
    np.save(tmp_path / "many.npy", stack)
    np.save(tmp_path / "one.npy", stack[1])
    frames = read(tmp_path, GREY)
    assert [name for name, _ in frames] == ["many-000000", "many-000001", "one"]
    for (_, arrays), reference in zip(frames, [*stack, stack[1]], strict=True):
        np.testing.assert_array_equal(arrays["image"], reference)


def test_stacked_frames_are_read_as_they_are_needed(tmp_path: Path) -> None:
    """So that a stream may be larger than the memory: the file here is a hole of 400 GB."""
    path = tmp_path / "large.npy"
    with path.open("wb") as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": (10**9, 100)}
        np.lib.format.write_array_header_1_0(stream, header)
        try:
            stream.truncate(stream.tell() + 4 * 10**11)
        except OSError:
            pytest.skip("no files with holes here")
    frame = next(iter(files.Files([path], [TensorSpec("x", (100,))])))
    assert isinstance(frame.inputs, dict)
    assert (frame.name, frame.inputs["x"].shape) == ("large-000000", (100,))


def test_several_inputs_come_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "pair.npz", left=np.zeros(2), right=np.ones(2))
    ((name, arrays),) = read(tmp_path / "pair.npz", *PAIR)
    assert (name, sorted(arrays)) == ("pair", ["left", "right"])
    np.save(tmp_path / "one.npy", np.zeros(2))
    with pytest.raises(InputError, match=r"has the inputs left, right; give a \.npz"):
        read(tmp_path / "one.npy", *PAIR)


def array_file(name: str) -> bytes:
    import io

    stream = io.BytesIO()
    if name.endswith(".npz"):
        np.savez(stream, image=np.zeros(1000))
    else:
        np.save(stream, np.zeros(1000))
    return stream.getvalue()


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
@pytest.mark.parametrize("damage", ["empty", "text", "cut", "changed", "header", "other kind", "pickled"])
def test_a_damaged_file_is_one_error(tmp_path: Path, name: str, damage: str) -> None:
    path, data = tmp_path / name, array_file(name)
    contents = {
        "empty": b"",
        "text": b"hello",
        "cut": data[: len(data) // 2],
        "changed": data[:400] + bytes([data[400] ^ 1]) + data[401:],
        "header": data.replace(b"'shape': (", b"'shape': ["),
        "other kind": array_file("a.npz" if name == "a.npy" else "a.npy"),
    }
    path.write_bytes(contents.get(damage, b""))
    if damage == "pickled":
        save: Any = np.save if name == "a.npy" else np.savez
        save(path, np.array([{"a": 1}], dtype=object))
    if (name, damage) == ("a.npy", "changed"):
        assert len(read(path, TensorSpec("image", (1000,)))) == 1, "this format has no checksum"
        return
    with pytest.raises(InputError, match=f"is not a valid .{name[2:]} file of plain arrays"):
        read(path, GREY)


def test_images_become_what_the_input_takes(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 14
    image.fromarray(pixels).save(tmp_path / "a.png")
    ((name, arrays),) = read(tmp_path / "a.png", COLOUR)
    assert name == "a"
    np.testing.assert_allclose(arrays["image"], pixels.transpose(2, 0, 1)[None] / 255, rtol=2e-7)
    ((_, arrays),) = read(tmp_path / "a.png", BYTES)
    assert (arrays["image"].dtype, arrays["image"].shape) == (np.uint8, (1, 1, 2, 3))
    image.fromarray(pixels).resize((30, 20)).save(tmp_path / "b.png")
    assert read(tmp_path / "b.png", GREY)[0][1]["image"].shape == (1, 1, 2, 3)


@pytest.mark.parametrize("size", [0, 5, 40, 60])
def test_a_damaged_image_is_one_error(tmp_path: Path, size: int) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.zeros((200, 300), np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "a.png").write_bytes((tmp_path / "a.png").read_bytes()[:size])
    with pytest.raises(InputError, match="is not a readable image"):
        read(tmp_path / "a.png", GREY)


def test_images_need_an_input_that_is_one(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    with pytest.raises(InputError, match=r"images do not fit the model's input x: float32\[2\]"):
        read(tmp_path / "a.png", TensorSpec("x", (2,)))


def test_without_pillow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    (tmp_path / "a.png").touch()
    with pytest.raises(MissingExtra, match="pip install 'pillow<"):
        read(tmp_path / "a.png", GREY)


def test_options_of_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.npy").touch()
    for text in (f"files:{tmp_path}/?speed=2", f"{tmp_path / 'a.npy'}?speed=2"):
        with pytest.raises(InputError, match=r"has the option 'speed'; it takes no options"):
            open_source(text, SourceOptions())


def test_photos_keep_their_picture_and_its_position(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    image.fromarray(pixels).save(tmp_path / "a.png")
    rules = Preparation(resize="letterbox", sampling="opencv", margin="corner")
    (frame,) = files.Files([tmp_path / "a.png"], [TensorSpec("x", (1, 3, 12, 12))], rules)
    assert frame.picture is not None
    np.testing.assert_array_equal(frame.picture, pixels)
    assert frame.geometry == fit("letterbox", (30, 20), (12, 12), margin="corner")
    assert isinstance(frame.inputs, dict)
    planes = pictures.resize(pixels.astype(float), (12, 8), "opencv").transpose(2, 0, 1) / 255
    np.testing.assert_allclose(frame.inputs["x"][0, :, :8], planes, atol=0.9 / 255)


def test_photos_are_upright(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    note = image.Exif()
    # The orientation of a camera that was turned by 90 degrees.
    note[0x0112] = 6
    image.fromarray(pixels).save(tmp_path / "a.png", exif=note)
    (frame,) = files.Files([tmp_path / "a.png"], [TensorSpec("x", (30, 20, 3), "uint8")])
    assert frame.picture is not None
    np.testing.assert_array_equal(frame.picture, np.rot90(pixels, -1))
    assert isinstance(frame.inputs, dict)
    np.testing.assert_array_equal(frame.inputs["x"], frame.picture)
    # A damaged note is none.
    image.fromarray(pixels).save(tmp_path / "a.png", exif=b"Exif\x00\x00damaged")
    np.testing.assert_array_equal(files.read_picture(tmp_path / "a.png"), pixels)


def test_photos_are_put_on_the_scale_of_a_quantised_input(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.full((4, 4, 3), 255, np.uint8)).save(tmp_path / "a.png")
    spec, scales = TensorSpec("x", (1, 4, 4, 3), "int8"), Quantization("x", (1 / 64,), (3,))
    (frame,) = files.Files([tmp_path], [spec], Preparation(scale=1), [scales])
    assert isinstance(frame.inputs, dict)
    assert (frame.inputs["x"] == 67).all()
