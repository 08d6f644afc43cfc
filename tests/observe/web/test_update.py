from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.core.tensor_quantization import Quantization
from pipeline.observe.web import drawing
from pipeline.observe.web.summary import LARGEST, picture, summary
from pipeline.observe.web.update import WatchedPipeline
from pipeline.scheduler import Pipeline, Trace
from tests.support.streams import IMAGE, NAME, pipeline, plan


def test_an_update_says_what_the_statistics_say() -> None:
    with pipeline() as running:
        watched = WatchedPipeline(running)
        list(running.map([IMAGE] * 20))
        statistics, update = running.statistics(), watched.update()
        assert update["model"] == NAME
        assert update["frames"]["ends"] == {"delivered": 20, "failed": 0, "cancelled": 0}
        assert update["frames"]["per_s"] == pytest.approx(statistics.frames_per_s)
        assert update["latency"]["ms"] == pytest.approx(
            [1e3 * statistics.latency_s.p50, 1e3 * statistics.latency_s.p95, 1e3 * statistics.latency_s.p99], abs=1e-3
        )
        assert sum(update["latency"]["counts"]) + update["latency"]["above"] == 20
        for row, stage in zip(update["stages"], statistics.stages, strict=True):
            assert (row["name"], row["out"], row["queue"], row["depth"]) == (stage.name, 20, 0, 2)
            assert 0 < row["busy"] <= 1
        watched.close()
    assert json.loads(json.dumps(update)) == update


def test_busy_shares_are_those_of_the_last_seconds() -> None:
    with pipeline() as running:
        watched = WatchedPipeline(running)
        list(running.map([IMAGE] * 20))
        first = watched.update()["stages"][0]["busy"]
        idle = watched.update()["stages"][0]["busy"]
        assert idle == 0 < first


def test_a_frame_is_kept_when_one_is_wanted_and_not_before() -> None:
    with pipeline() as running:
        watched = WatchedPipeline(running)
        list(running.map([IMAGE] * 3))
        assert watched.update()["frame"] is None
        list(running.map([IMAGE] * 3))
        frame = watched.update()["frame"]
        assert frame["number"] == 3
        assert frame["inputs"][0]["picture"].startswith("data:image/png;base64,")
        assert frame["outputs"][0]["name"] == "scores"
        assert frame["outputs"][0]["rows"] == [0]
        watched.close()
        list(running.map([IMAGE] * 3))
        assert watched.update()["frame"]["number"] == 3


def test_scores_of_integers_are_shown_as_the_numbers_they_stand_for() -> None:
    scores = TensorSpec("scores", (1, 3), "int8")
    board = Board("board", (Device("device", "python"),))
    stage = StagePlan("classify", "device", (TensorSpec("x", (1,)),), (scores,))
    plan = Plan(
        "m", "", board, stage.inputs, (scores,), (stage,), quantization=(Quantization("scores", (0.5,), (-2,)),)
    )
    with Pipeline(plan, [lambda _: np.array([[-2, 4, 0]], np.int8)]) as running:
        watched = WatchedPipeline(running)
        watched.update()
        running.submit(np.zeros(1, np.float32)).result()
        (output,) = watched.update()["frame"]["outputs"]
    assert (output["dtype"], output["best"]) == ("int8", [[1, 3.0], [2, 1.0], [0, 0.0]])


def test_the_callers_array_may_change_after_the_frame() -> None:
    with pipeline() as running:
        watched, mine = WatchedPipeline(running), IMAGE.copy()
        watched.update()
        running.submit(mine, copy=False).result()
        mine[:] = 0
        assert watched.update()["frame"]["inputs"] == [summary("image", IMAGE)]


def test_a_camera_s_own_format_is_turned_into_a_picture() -> None:
    with pipeline() as running:
        watched = WatchedPipeline(
            running, lambda array: np.full((16, 16, 3), round(float(array.max())) * 255, np.uint8)
        )
        watched.update()
        running.submit(IMAGE).result()
        picture = watched.update()["frame"]["inputs"][0]["picture"]
    pixels = decode(base64.b64decode(picture.partition(",")[2]))
    assert (pixels.shape, pixels.min()) == ((16, 16, 3), 255)


def test_a_frame_that_failed_shows_its_error() -> None:
    x = TensorSpec("x", (4,))
    y = TensorSpec("y", (4,))
    stage = StagePlan("fails", "python", (x,), (y,))

    def fail(_: np.ndarray) -> np.ndarray:
        raise ValueError("too dark")

    with Pipeline(Plan("m", "", Board("b", (Device("python", "python"),)), (x,), (y,), (stage,)), [fail]) as running:
        watched = WatchedPipeline(running)
        watched.update()
        assert running.submit(np.zeros(4, np.float32)).exception() is not None
        update = watched.update()
    assert "too dark" in update["frame"]["error"]
    assert update["frame"]["outputs"] == []
    assert update["frames"]["ends"]["failed"] == 1


def test_without_a_trace_there_is_no_timeline() -> None:
    with pipeline(trace=False) as running:
        assert WatchedPipeline(running).update()["timeline"] is None


def test_the_timeline_has_the_newest_frames_in_a_row_for_each_worker() -> None:
    with pipeline() as running:
        list(running.map([IMAGE] * 40))
        assert running.trace is not None
        timeline = drawing.timeline(running.trace, running.plan)
    assert timeline["rows"] == ["detect", "refine 1", "refine 2", "classify"]
    assert {frame for _, frame, *_ in timeline["events"]} == set(range(40 - drawing.FRAMES, 40))
    assert all(0 <= start <= start + length <= timeline["span"] + 0.002 for *_, start, length in timeline["events"])
    assert {kind for _, _, kind, *_ in timeline["events"]} >= {"run"}


def test_an_empty_timeline_is_empty() -> None:
    assert drawing.timeline(Trace(), plan()) == {
        "rows": ["detect", "refine 1", "refine 2", "classify"],
        "span": 0.0,
        "events": [],
    }


def test_edges_name_the_tensors_also_those_that_pass_a_stage_by() -> None:
    tensors = {(edge["from"], edge["to"]): edge["tensors"] for edge in drawing.edges(plan())}
    assert tensors.keys() == {(-1, 0), (0, 1), (0, 2), (1, 2), (2, 3)}
    assert tensors[0, 2] == ["b: float32[4]"]


@pytest.mark.parametrize(
    "durations", [[], [0.01], [0.01] * 7, [0.001 * n for n in range(1, 1001)], [0.01] * 500 + [9.0]]
)
def test_a_histogram_counts_every_duration_once(durations: list[float]) -> None:
    histogram = drawing.histogram(durations)
    assert sum(histogram["counts"]) + histogram["above"] == len(durations)
    assert histogram["from"] <= histogram["to"]


def test_one_slow_frame_does_not_squeeze_the_histogram() -> None:
    histogram = drawing.histogram([0.01, 0.011] * 250 + [9.0])
    assert (histogram["to"], histogram["above"]) == (11.0, 1)


def decode(data: bytes | None) -> np.ndarray:
    image = pytest.importorskip("PIL.Image")
    assert data is not None
    return np.asarray(image.open(io.BytesIO(data)))


def test_a_picture_is_the_image() -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    assert np.array_equal(decode(picture(rgb)), rgb)
    assert np.array_equal(decode(picture(rgb.transpose(2, 0, 1)[None])), rgb)
    assert np.array_equal(decode(picture(rgb[..., 0])), rgb[..., 0])
    assert np.abs(decode(picture(rgb / np.float32(255))).astype(int) - rgb).max() <= 1


def test_values_of_any_range_are_spread_from_black_to_white() -> None:
    pixels = decode(picture(np.linspace(-3, 7, 100, dtype=np.float32).reshape(1, 10, 10)))
    assert (pixels.min(), pixels.max()) == (0, 255)
    constant = decode(picture(np.full((1, 10, 10), -2.0)))
    assert np.ptp(constant) == 0
    assert decode(picture(np.full((1, 10, 10), np.nan))).max() == 0


def test_a_batch_is_a_sheet_and_large_images_are_thinned_out() -> None:
    batch = np.stack([np.full((1, 8, 8), value, np.uint8) for value in range(5)])
    sheet = decode(picture(batch))
    assert sheet.shape == (16, 24)
    assert [sheet[0, 0], sheet[0, 8], sheet[0, 16], sheet[8, 0], sheet[8, 8], sheet[8, 16]] == [0, 1, 2, 3, 4, 0]
    assert max(decode(picture(np.zeros((1080, 1920, 3), np.uint8))).shape) <= LARGEST


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((1, 1000)),
        np.zeros(7),
        np.zeros((5, 5, 3)),
        np.zeros((1, 500, 15), np.float32),
        np.zeros((0, 20, 20, 3)),
        np.zeros((2, 2, 30, 30)),
        np.array("text"),
    ],
)
def test_what_is_no_image_has_no_picture(array: np.ndarray) -> None:
    assert picture(array) is None
    assert "picture" not in summary("x", array)


def test_scores_are_listed_from_the_largest() -> None:
    description = summary("scores", np.array([[1, 5, 3], [9, 2, 4]], np.float32))
    assert description["best"] == [[1, 5.0], [2, 3.0], [0, 1.0]]
    assert description["rows"] == [1, 0]
    assert (description["low"], description["high"], description["mean"], description["shape"]) == (1, 9, 4, [2, 3])


def test_pictures_are_data_the_policy_allows() -> None:
    description = summary("image", IMAGE)
    kind, _, data = description["picture"].partition(",")
    assert kind == "data:image/png;base64"
    assert decode(base64.b64decode(data)).shape == (24, 32)


def test_a_frame_is_drawn_with_its_metadata_and_outputs_by_name() -> None:
    calls = []

    def draw(metadata: object, inputs: Sequence[np.ndarray], outputs: Mapping[str, np.ndarray]) -> tuple[bytes, str]:
        calls.append((metadata, inputs[0].shape, list(outputs)))
        return b"jpeg", "dog 0.90"

    with pipeline() as running:
        watched = WatchedPipeline(running, draw=draw)
        watched.update()
        running.submit(IMAGE, metadata="meta").result()
        frame = watched.update()["frame"]
        watched.update()
        watched.close()
    # Once for each frame that is shown.
    assert calls == [("meta", IMAGE.shape, ["scores"])]
    assert frame["result"] == {"picture": "data:image/jpeg;base64,anBlZw==", "text": "dog 0.90"}
    assert frame["inputs"][0]["picture"] is None


def test_the_history_has_a_point_for_each_update() -> None:
    with pipeline() as running:
        watched = WatchedPipeline(running)
        list(running.map([IMAGE] * 3))
        histories = [watched.update()["history"] for _ in range(3)]
        watched.close()
    assert [len(history["seconds"]) for history in histories] == [1, 2, 3]
    assert histories[-1]["seconds"][-1] == 0
    assert sorted(histories[-1]["seconds"]) == histories[-1]["seconds"]
    curves = histories[-1]["curves"]
    assert list(curves) == ["frames_per_s", "latency_ms", "clock_mhz", "temperature_c"]
    assert all(len(values) == 3 for values in curves.values())
    assert min(curves["latency_ms"]) > 0
