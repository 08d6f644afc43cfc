"""Lines of text, and what is written there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pipeline.core.model_card import ModelCard
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.decoders.base import ModelInterface
from pipeline.io.decoders.components import hulls, label_runs, smallest_rectangles
from pipeline.io.decoders.registry import candidates, complete_card, make_decoder
from pipeline.io.results import Detections, Result


def read(best: Sequence[int], labels: Sequence[str], count: int, *, scale: float = 1.0, **parameters: object) -> Result:
    scores = (np.arange(count) == np.array(best)[:, None]).astype(np.float32)[None] * scale
    interface = ModelInterface((96, 32), [TensorSpec("y", scores.shape)], labels)
    return make_decoder(ModelCard(decoder="ctc", parameters=parameters), interface)({"y": scores})


@pytest.mark.parametrize(
    ("best", "text"),
    [
        ([1, 1, 0, 2, 2, 2, 0], "ab"),
        # A blank stands between two that are the same.
        ([1, 0, 1], "aa"),
        ([0, 1, 3, 2], "a b"),
        ([0, 0], ""),
    ],
)
def test_repetitions_count_once_and_blanks_are_dropped(best: list[int], text: str) -> None:
    # Three classes behind the blank: two characters, and the space that PaddleOCR adds.
    assert read(best, "ab", 4).facts() == [{"text": text, "score": float(bool(text))}]


def test_the_blank_may_be_last_and_scores_may_be_logits() -> None:
    result = read([0, 0, 2, 1], "ab", 3, scale=20, blank=-1)
    assert result.facts() == [{"text": "ab", "score": 1.0}]


def test_text_is_recognised_by_its_characters() -> None:
    interface = ModelInterface((96, 32), [TensorSpec("y", (1, 24, 38))], [chr(97 + n) for n in range(36)])
    card = complete_card(ModelCard(), interface)
    assert (card.decoder, card.task) == ("ctc", "text")
    assert complete_card(ModelCard(), ModelInterface((96, 32), interface.outputs)).decoder == ""
    with pytest.raises(InputError, match="36 characters for the 40 classes of 'y', of which one is the blank"):
        read([1, 2], interface.labels, 40)


def rectangle(
    width: int, height: int, centre: tuple[float, float], size: tuple[float, float], angle: float
) -> np.ndarray:
    """Return the pixels inside of a turned rectangle."""
    y, x = np.mgrid[:height, :width].astype(float)
    x, y = x - centre[0], y - centre[1]
    along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    inside: np.ndarray = (np.abs(along) <= size[0] / 2) & (np.abs(across) <= size[1] / 2)
    return inside


@pytest.mark.parametrize("angle", [0.0, 0.3, -0.6, 0.7])
def test_a_turned_line_of_text_is_found_and_widened(angle: float) -> None:
    inside = rectangle(160, 128, (70, 60), (80, 20), angle)
    interface = ModelInterface((320, 256), [TensorSpec("y", (1, 1, 128, 160))])
    decoder = make_decoder(ModelCard(decoder="text-boxes", parameters={"dilate": False}), interface)
    text = decoder({"y": np.where(inside, 0.9, 0.0).astype(np.float32)[None, None]})
    assert isinstance(text, Detections)
    assert (len(text), text.names) == (1, ["text"])
    assert text.angles is not None
    assert abs(text.angles[0] - angle) < 0.03
    # Widened on each side by 1.6 times the area over the circumference; the map has half of the input's pixels.
    distance = 1.6 * 80 * 20 / 200
    left, top, right, bottom = text.boxes[0].tolist()
    assert abs((right - left) - 2 * (80 + 2 * distance)) < 6
    assert abs((bottom - top) - 2 * (20 + 2 * distance)) < 6
    assert np.abs(text.boxes[0].reshape(2, 2).mean(0) - (140, 120)).max() < 1
    assert 0.8 < text.scores[0] <= 0.9


def test_faint_and_small_text_is_left_out() -> None:
    plane = np.zeros((1, 64, 64, 1), np.float32)
    plane[0, 10:20, 10:50], plane[0, 30:32, 10:50], plane[0, 40:50, 10:30] = 0.8, 0.9, 0.4
    interface = ModelInterface((64, 64), [TensorSpec("y", plane.shape)])
    text = make_decoder(ModelCard(decoder="text-boxes"), interface)({"y": plane})
    # The first, joined with its right and lower neighbours; the second is too thin, and the third too faint.
    assert [round(fact["score"], 1) for fact in text.facts()] == [0.7]
    everything = ModelCard(decoder="text-boxes", parameters={"score": 0.3, "dilate": False})
    assert len(make_decoder(everything, interface)({"y": plane}).facts()) == 2
    assert make_decoder(everything, interface)({"y": plane * 0}).summary() == "nothing"


def test_components_touch_by_corners() -> None:
    rows = ["##..#", "..#.#", "#...#", "##.##"]
    mask = np.array([[letter == "#" for letter in row] for row in rows])
    runs, labels = label_runs(mask)
    assert runs.tolist() == [[0, 0, 2], [0, 4, 5], [1, 2, 3], [1, 4, 5], [2, 0, 1], [2, 4, 5], [3, 0, 2], [3, 3, 5]]
    assert labels.tolist() == [0, 1, 0, 1, 2, 1, 2, 1]


@pytest.mark.parametrize("seed", range(6))
def test_rectangles_are_the_smallest_of_all(seed: int) -> None:
    """Against all directions from one pixel to another."""
    random = np.random.default_rng(seed)
    mask = random.random((14, 14)) < 0.3
    runs, labels = label_runs(mask)
    _, sizes, _ = smallest_rectangles(*hulls(runs, labels))
    assert len(sizes) == labels.max() + 1
    for number, size in enumerate(sizes):
        parts = [np.stack([np.arange(a, b), np.full(b - a, y)], axis=1) for y, a, b in runs[labels == number].tolist()]
        points = np.concatenate(parts).astype(float)
        steps = (points[None] - points[:, None]).reshape(-1, 2)
        angles = np.unique(np.arctan2(steps[:, 1], steps[:, 0]))
        spans = [
            np.ptp(points @ [np.cos(angle), np.sin(angle)]) * np.ptp(points @ [-np.sin(angle), np.cos(angle)])
            for angle in angles
        ]
        assert abs(size.prod() - min(spans)) < 1e-9


def test_a_map_with_paddle_s_name_is_text() -> None:
    paddle, other = (ModelInterface((64, 32), [TensorSpec(name, (1, 1, 32, 64))]) for name in ("sigmoid_0.tmp_0", "y"))
    card = complete_card(ModelCard(), paddle)
    assert (card.decoder, card.task) == ("text-boxes", "obb")
    assert "'sigmoid_0.tmp_0' of PaddlePaddle's exporter" in card.origins["decoder"]
    assert complete_card(ModelCard(), other).decoder == ""


@pytest.mark.parametrize(
    ("shape", "name", "families"),
    [
        ((1, 32, 64, 1), "y", ["mask"]),
        ((1, 1, 32, 64), "y", ["mask", "text-boxes"]),
        ((1, 32, 64, 1), "sigmoid_0.tmp_0", ["mask", "text-boxes"]),
    ],
)
def test_a_map_with_channels_last_is_text_by_its_name(shape: Sequence[int], name: str, families: list[str]) -> None:
    assert list(candidates(ModelInterface((64, 32), [TensorSpec(name, tuple(shape))]))) == families
