from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.io.results import COCO_POINTS, Classes, Detections, Mask, Text, run_lengths
from pipeline.picture.geometry import fit

BOXES = np.array([[10, 20, 30, 60], [0, 0, 8, 8]], np.float32)


def detections(**fields: object) -> Detections:
    scores, classes = np.array([0.9, 0.25], np.float32), np.array([1, 7])
    return Detections(BOXES, scores, classes, ["cat", "dog"], **fields)  # type: ignore[arg-type]


def test_boxes_points_and_masks_come_back_to_the_picture() -> None:
    # Half of the size, with 25 rows of margin above and below.
    geometry = fit("letterbox", (200, 100), (100, 100))
    masks = np.zeros((2, 100, 100), np.float32)
    masks[0, 25:50, :50] = 1
    points = np.array([[[50, 50, 0.5]], [[0, 25, 1]]], np.float32)
    result = detections(masks=masks, points=points).to_picture(geometry, (200, 100))
    # What lies in the margin ends at the picture's edge.
    assert result.boxes.tolist() == [[20, 0, 60, 70], [0, 0, 16, 0]]
    assert result.points is not None
    assert result.points.tolist() == [[[100, 50, 0.5]], [[0, 0, 1]]]
    assert result.masks is not None
    assert (result.masks.dtype, result.masks.shape) == (np.dtype(bool), (2, 100, 200))
    # Of a mask, the part inside of its box.
    assert result.masks[0, :50, 20:60].all()
    assert result.masks.sum() == 50 * 40
    assert detections(masks=np.zeros((2, 4, 4)))[:0].to_picture(geometry, (200, 100)).masks.shape == (0, 100, 200)


def test_a_turned_box_keeps_its_shape_where_the_scales_are_equal() -> None:
    geometry = fit("letterbox", (200, 100), (100, 100))
    angles = np.array([0.3, np.pi / 2], np.float32)
    result = detections(angles=angles).to_picture(geometry, (200, 100))
    np.testing.assert_allclose(result.boxes, [[20, -10, 60, 70], [0, -50, 16, -34]], atol=1e-4)
    assert result.angles is not None
    np.testing.assert_allclose(result.angles, angles, atol=1e-6)
    # A quarter turn in a picture that was stretched: its width is along the picture's height.
    stretched = detections(angles=angles)[1:].to_picture(fit("stretch", (200, 100), (100, 100)), (200, 100))
    np.testing.assert_allclose(stretched.boxes, [[4, -4, 12, 12]], atol=1e-4)


def test_facts_are_plain_and_say_all() -> None:
    masks = np.zeros((2, 3, 4), bool)
    masks[0, 0, 1:3] = True
    points = np.array([[[1, 2, 0.5]], [[3, 4, 0.25]]], np.float32)
    tracks, angles = np.array([5, 6]), np.array([0.5, 0], np.float32)
    first, second = detections(points=points, masks=masks, tracks=tracks, angles=angles, point_names=["nose"]).facts()
    assert first == {
        "label": "dog", "class": 1, "score": 0.9, "box": [10, 20, 30, 60], "points": {"nose": [1, 2, 0.5]},
        "angle": 0.5, "track": 5, "mask": {"size": [3, 4], "counts": [3, 1, 2, 1, 5]},
    }  # fmt: skip
    assert (second["label"], second["mask"]["counts"]) == ("class 7", [12])
    person = detections(points=np.zeros((2, 17, 3), np.float32)).facts()[0]
    assert tuple(person["points"]) == COCO_POINTS
    assert detections(points=points).facts()[0]["points"] == [[1, 2, 0.5]]


def test_a_line_for_people() -> None:
    assert detections().summary() == "dog 0.90 [10 20 30 60], class 7 0.25 [0 0 8 8]"
    assert detections()[:0].summary() == "nothing"
    assert Classes(np.array([1, 0]), np.array([0.75, 0.25]), ["a", "b"]).summary() == "b 0.75, a 0.25"
    assert Text("exit", 0.5).summary() == "'exit' 0.50"
    assert Mask(np.array([[0, 0, 0, 1]], np.uint8), labels=["ground", "sky"]).summary() == "ground 75%, sky 25%"


@pytest.mark.parametrize(
    ("rows", "counts"), [(["10", "01"], [0, 1, 2, 1]), (["00", "00"], [4]), (["11", "11"], [0, 4]), (["01"], [1, 1])]
)
def test_run_lengths_are_those_of_coco(rows: list[str], counts: list[int]) -> None:
    mask = np.array([[letter == "1" for letter in row] for row in rows])
    assert run_lengths(mask) == {"size": list(mask.shape), "counts": counts}


def test_a_map_of_scores_becomes_classes_at_the_picture_s_size() -> None:
    geometry = fit("stretch", (8, 4), (4, 4))
    scores = np.zeros((3, 2, 2), np.float32)
    scores[1, 0], scores[2, 1] = 1, 1
    classes = Mask(None, scores).to_picture(geometry, (8, 4)).classes
    assert classes is not None
    assert classes.tolist() == [[1] * 8] * 2 + [[2] * 8] * 2
    single = Mask(None, scores[2:], threshold=0.5).to_picture(geometry, (8, 4))
    assert single.facts() == [
        {"label": "class 0", "class": 0, "pixels": 16, "mask": {"size": [4, 8], "counts": [0, *[2] * 16]}},
        {"label": "class 1", "class": 1, "pixels": 16, "mask": {"size": [4, 8], "counts": [2] * 16}},
    ]


def test_detections_have_what_supervision_s_annotators_read() -> None:
    masks, tracks = np.zeros((2, 4, 4), bool), np.array([3, 4])
    result = detections(masks=masks, tracks=tracks, angles=np.zeros(2, np.float32))
    assert (result.xyxy is result.boxes, result.mask is masks, result.tracker_id is tracks) == (True, True, True)
    assert (result.confidence is result.scores, result.class_id is result.classes) == (True, True)
    assert result["class_name"].tolist() == ["dog", "class 7"]
    assert result["xyxyxyxy"][1].tolist() == [[0, 0], [8, 0], [8, 8], [0, 8]]
    rows = list(result)
    assert len(rows) == len(result) == 2
    box, mask, score, number, track, data = rows[0]
    assert (box.tolist(), mask.shape, number, track) == ([10, 20, 30, 60], (4, 4), 1, 3)
    assert (float(score), str(data["class_name"])) == (float(np.float32(0.9)), "dog")
    best = result[result.scores > 0.5]
    assert (len(best), best.names, best.tracks.tolist(), best.masks.shape) == (1, ["dog"], [3], (1, 4, 4))
    assert len(result[1]) == 1


def test_the_rest_is_supervision_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Real:
        def __init__(self, **fields: object) -> None:
            self.fields, self.area = fields, 7

    monkeypatch.setitem(sys.modules, "supervision", SimpleNamespace(Detections=Real))
    result = detections()
    assert result.area == 7  # type: ignore[attr-defined]
    fields = result.to_supervision().fields
    assert sorted(fields) == ["class_id", "confidence", "data", "mask", "tracker_id", "xyxy"]
    assert fields["xyxy"] is result.boxes
    monkeypatch.delitem(sys.modules, "supervision")
    with pytest.raises(AttributeError, match="no attribute 'area'"):
        result.area  # type: ignore[attr-defined]  # noqa: B018 - raises
