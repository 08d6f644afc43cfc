from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.results import Detections
from pipeline.io.sinks import registry
from pipeline.io.sinks.annotation import make_annotator
from pipeline.io.sinks.base import SinkOptions
from pipeline.io.source_frame import SourceFrame, StreamFrame
from pipeline.picture.geometry import fit
from tests.support import media

image = pytest.importorskip("PIL.Image")
OUTPUTS = (TensorSpec("y", (1, 2)),)
GREY = np.full((60, 80, 3), 90, np.uint8)


def frame(name: str = "street", score: float = 0.5) -> StreamFrame:
    """Return a photo's frame with a box of a dog."""
    scores, classes = np.array([score], np.float32), np.zeros(1, np.int64)
    dog = Detections(np.array([[20, 30, 60, 50]], np.float32), scores, classes, ["dog"])
    source = SourceFrame(name, {"x": np.zeros(3)}, 0, picture=GREY)
    return StreamFrame(source, {"y": np.zeros((1, 2))}, result=dog)


def read(path: Path) -> np.ndarray:
    with image.open(path) as photo:
        return np.asarray(photo.convert("RGB"))


@pytest.mark.parametrize("name", ["out.jpg", "out.jpeg", "out.png", "out.webp"])
def test_the_annotated_photo_is_written(tmp_path: Path, name: str) -> None:
    with registry.open_sinks([str(tmp_path / name)], OUTPUTS, decoded=True) as sink:
        sink.add(frame())
    photo = read(tmp_path / name)
    assert photo.shape == (60, 80, 3)
    assert abs(photo[40, 20].astype(int) - 90).max() > 40
    assert abs(photo[55:, 70:].astype(int) - 90).max() < 4
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_further_photos_have_numbers_or_the_names_of_their_frames(tmp_path: Path) -> None:
    texts = [str(tmp_path / "out.png"), f"photo:{tmp_path / 'all'}"]
    with registry.open_sinks(texts, OUTPUTS, decoded=True) as sink:
        for name in ("a", "b", "a"):
            sink.add(frame(name))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all", "out-2.png", "out-3.png", "out.png"]
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["a-2.jpg", "a.jpg", "b.jpg"]


def test_labels_and_scores_of_the_sink_win_over_the_model_s(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("x" * 40)
    for number, options in enumerate(["least=0.1", "least=0.9", f"least=0.1&labels={tmp_path / 'names'}"]):
        sink = registry.open_sink(f"{tmp_path / str(number)}.png?{options}", OUTPUTS, decoded=True)
        sink.add(frame())
    dog, nothing, name = (read(tmp_path / f"{number}.png") for number in range(3))
    assert (nothing == 90).all()
    assert (dog[40, 20] != 90).any()
    # A name that is wider than the box.
    assert (dog[15:30, 75] == 90).all()
    assert (name[15:30, 75] != 90).any()


def test_a_picture_that_the_model_made_is_written_without_a_decoder(tmp_path: Path) -> None:
    picture = media.smooth()
    with registry.open_sinks([str(tmp_path / "out.png")], OUTPUTS) as sink:
        sink.add(media.frame_result(picture))
        sink.add(media.frame_result(picture[..., :1]))
    np.testing.assert_array_equal(read(tmp_path / "out.png"), picture)
    np.testing.assert_array_equal(read(tmp_path / "out-2.png")[..., 2], picture[..., 0])


def test_photos_of_other_and_odd_sizes_are_drawn_into_a_video(tmp_path: Path) -> None:
    pytest.importorskip("av")
    sizes = [(61, 81), (100, 50)]
    with registry.open_sinks([str(tmp_path / "out.mp4")], OUTPUTS, decoded=True) as sink:
        for height, width in sizes:
            photo = frame()
            sink.add(replace(photo, frame=replace(photo.frame, picture=np.zeros((height, width, 3), np.uint8))))
    pictures, _ = media.read(tmp_path / "out.mp4")
    assert pictures.shape == (2, 60, 80, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("out.jpg?show=all", "'label' or 'boxes'"),
        ("out.jpg?least=0.5", "to a model with a decoder"),
        ("out.jpg?quality=3", "the options are labels, least, show"),
        ("photo:out.gif", "photos are .jpeg .jpg .png .webp"),
        ("photo:file", "or photo:FOLDER"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "file").touch()
    kind, colon, location = text.rpartition(":")
    with (
        pytest.raises(InputError, match=message),
        registry.open_sinks([f"{kind}{colon}{tmp_path / location}"], OUTPUTS),
    ):
        pytest.fail("opened")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_without_a_picture_there_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no frame was delivered"), registry.open_sinks([f"{tmp_path}/a.jpg"], OUTPUTS):
        pass
    with (
        pytest.raises(InputError, match="a: neither the source nor the model gives a picture"),
        registry.open_sinks([f"{tmp_path}/a.jpg"], OUTPUTS) as sink,
    ):
        sink.add(media.frame_result(np.zeros(2)))
    assert not list(tmp_path.iterdir())


def test_boxes_without_a_card_lie_in_the_photo_s_pixels() -> None:
    rows = np.array([[[10, 20, 30, 40, 0.9, 1]]], np.float32)
    picture = np.zeros((200, 400, 3), np.uint8)
    frame = SourceFrame("photo", {}, 0, picture=picture, geometry=fit("stretch", (400, 200), (100, 100)))
    annotator = make_annotator({"show": "boxes"}, SinkOptions([TensorSpec("rows", rows.shape, "float32")]))
    detections = annotator.result(StreamFrame(frame, {"rows": rows}))
    assert isinstance(detections, Detections)
    np.testing.assert_allclose(detections.boxes, [[40, 40, 120, 80]])
