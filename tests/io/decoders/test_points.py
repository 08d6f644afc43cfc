from __future__ import annotations

import numpy as np
import pytest

from pipeline.core.model_card import ModelCard
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.decoders.base import ModelInterface
from pipeline.io.decoders.registry import complete_card, make_decoder, parse_decoder
from pipeline.io.results import COCO_POINTS, Detections


def decode(array: np.ndarray, card: ModelCard, size: tuple[int, int] = (200, 100)) -> Detections:
    result = make_decoder(card, ModelInterface(size, [TensorSpec("y", array.shape)]))({"y": array})
    assert isinstance(result, Detections)
    return result


def test_movenet_is_recognised_and_its_points_are_in_pixels() -> None:
    array = np.zeros((1, 1, 17, 3), np.float32)
    array[0, 0, 0], array[0, 0, 16] = (0.5, 0.25, 0.9), (0.75, 0.5, 0.8)
    interface = ModelInterface((200, 100), [TensorSpec("y", array.shape)])
    card = complete_card(ModelCard(), interface)
    assert (card.decoder, card.task) == ("points", "pose")
    assert card.preparation is not None
    assert (card.preparation.resize, card.preparation.scale, card.preparation.fill) == ("letterbox", 255, 0)
    person = decode(array, card)
    assert person.points is not None
    np.testing.assert_allclose(person.points[0, [0, 16]], [[50, 50, 0.9], [100, 75, 0.8]])
    # Around the points that are there.
    assert person.boxes.tolist() == [[50, 50, 100, 75]]
    assert person.names == ["person"]
    assert person.facts()[0]["points"]["right ankle"] == [100, 75, 0.8]
    assert tuple(person.facts()[0]["points"]) == COCO_POINTS
    assert len(decode(array * 0.1, card)) == 0


@pytest.mark.parametrize(
    ("parameters", "scale", "points"),
    [
        # Pixels, and a logit of visibility behind them.
        ({"fields": 4, "score": 3}, 1, [[40, 60, 0.75], [80, 90, 0.5]]),
        ({"fields": 4, "order": "yx"}, 1, [[60, 40, 1], [90, 80, 1]]),
        ({"fields": 4, "unit": "fraction"}, 0.01, [[80, 60, 1], [160, 90, 1]]),
        ({"fields": 4, "unit": "pixel"}, 0.01, [[0.4, 0.6, 1], [0.8, 0.9, 1]]),
    ],
)
def test_points_have_as_many_numbers_as_they_have(
    parameters: dict[str, object], scale: float, points: list[list[float]]
) -> None:
    rows = np.array([[40 * scale, 60 * scale, 5, np.log(3)], [80 * scale, 90 * scale, 5, 0]], np.float32)
    person = decode(rows.reshape(1, 1, 1, 8), ModelCard(decoder="points", parameters=parameters))
    assert person.points is not None
    np.testing.assert_allclose(person.points[0], points, rtol=1e-6)


def test_heat_maps_have_a_quarter_of_a_cell() -> None:
    maps = np.zeros((1, 4, 10, 20), np.float32)
    maps[0, 0, 4, 6], maps[0, 0, 4, 7], maps[0, 0, 3, 6] = 0.9, 0.5, 0.25
    maps[0, 1, 9, 19] = 0.5
    maps[0, 2, 0, 0] = 1.0
    for array in (maps, maps.transpose(0, 2, 3, 1)):
        person = decode(np.ascontiguousarray(array), ModelCard(decoder="heatmap"))
        assert person.points is not None
        # Ten pixels a cell; the second is in the corner, and nobody is in the last map.
        np.testing.assert_allclose(
            person.points[0], np.array([[62.5, 37.5, 0.9], [190, 90, 0.5], [0, 0, 1], [0, 0, 0]])
        )
        assert person.boxes.tolist() == [[0, 0, 190, 90]]


def test_maps_of_17_points_are_recognised() -> None:
    seventeen, six = (ModelInterface((64, 64), [TensorSpec("y", (1, count, 16, 16))]) for count in (17, 6))
    assert complete_card(ModelCard(), seventeen).decoder == "heatmap"
    assert complete_card(ModelCard(), six).decoder == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [("points:order=zx", "order is 'zx'"), ("points:unit=mm", "unit is 'mm'"), ("points:fields=3&score=3", "number 3")],
)
def test_parameters_are_checked(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_decoder(text)


def test_what_is_no_list_of_points_is_refused() -> None:
    with pytest.raises(InputError, match=r"'y' is \[1, 100\], which are no points of 3 numbers"):
        decode(np.zeros((1, 100), np.float32), ModelCard(decoder="points"))
    with pytest.raises(InputError, match="no output 'z'; there are y"):
        decode(np.zeros((1, 6), np.float32), ModelCard(decoder="points", parameters={"output": "z"}))
    with pytest.raises(InputError, match="takes one picture"):
        decode(np.zeros((1, 6), np.float32), ModelCard(decoder="points"), (0, 0))


@pytest.mark.parametrize(("logit", "score"), [(4.0, [0.982]), (-4.0, [])])
def test_an_output_of_presence_says_whether_there_is_anything(logit: float, score: list[float]) -> None:
    interface = ModelInterface((64, 64), [TensorSpec("points", (1, 6)), TensorSpec("presence", (1, 1))])
    card = ModelCard(decoder="points", parameters={"output": "points", "presence": "presence", "unit": "pixel"})
    outputs = {"points": np.array([[1, 2, 0, 30, 40, 0]], np.float32), "presence": np.array([[logit]], np.float32)}
    result = make_decoder(card, interface)(outputs)
    assert result.scores.round(3).tolist() == pytest.approx(score)  # type: ignore[union-attr]
    with pytest.raises(InputError, match="there is no output 'prescence'"):
        make_decoder(ModelCard(decoder="points", parameters={"presence": "prescence"}), interface)
