"""Predictions of applications from the plans of their models."""

from __future__ import annotations

import pytest

from pipeline.app.app_prediction import predict_app
from pipeline.app.application import App
from pipeline.app.nodes import Model, Stream
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.errors import AppError

BOARD = Board("two cores", (Device("cpu", "cpu", target={"kind": "llvm"}, cores=(0, 1)),))

# A prediction counts the hop of a stage's worker.
TOLERANCE = 0.02


def plan(seconds: float, cores: tuple[int, ...] = (0, 1), replicas: int = 2) -> Plan:
    """Return the plan of a model of one stage on some cores."""
    ends = TensorSpec("x", (4,)), TensorSpec("y", (4,))
    stage = StagePlan(
        name="stage0",
        device="cpu",
        operators=("op",),
        inputs=ends[:1],
        outputs=ends[1:],
        seconds=seconds,
        cores=cores,
        replicas=replicas,
    )
    return Plan("model", "", BOARD, ends[:1], ends[1:], (stage,))


def app(**streams: float | None) -> App:
    """Return streams by their rates, a detector, and a classifier of its boxes."""
    return App(
        {name: Stream(source="-", fps=fps) for name, fps in streams.items()},
        {"boxes": Model(file="-"), "crops": Model(file="-", reads=("boxes",), for_each="boxes")},
    )


PLANS = {"boxes": plan(0.02), "crops": plan(0.01)}


@pytest.mark.parametrize(
    ("streams", "rates", "limits"),
    [
        # A frame takes 20 ms and four times 10 ms of two cores.
        ({"a": None}, {"a": 1 / 0.03}, {"a": "core 0"}),
        ({"a": 10.0}, {"a": 10.0}, {"a": "its source"}),
        ({"a": None, "b": None}, {"a": 0.5 / 0.03, "b": 0.5 / 0.03}, {"a": "core 0", "b": "core 0"}),
        # What a slow stream leaves goes to the others.
        ({"a": 5.0, "b": 30.0, "c": None}, {"a": 5.0, "b": 14.17, "c": 14.17}, {"a": "its source", "c": "core 0"}),
    ],
)
def test_streams_share_what_models_run_on(
    streams: dict[str, float | None], rates: dict[str, float], limits: dict[str, str]
) -> None:
    prediction = predict_app(app(**streams), PLANS)
    found = {name: stream.frames_per_s for name, stream in prediction.streams.items()}
    assert found == pytest.approx(rates, rel=TOLERANCE)
    assert {name: prediction.streams[name].bottleneck for name in limits} == limits
    assert prediction.models["crops"].runs_per_s == pytest.approx(4 * sum(found.values()))
    assert prediction.busy["core 0"] == pytest.approx(sum(found.values()) * 0.03, rel=TOLERANCE)


def test_a_model_that_others_share_nothing_with_limits_its_own_streams_only() -> None:
    nodes = {
        "slow": Model(file="-", reads=("a",)),
        "quick": Model(file="-", reads=("b",)),
    }
    two = App({"a": Stream(source="-"), "b": Stream(source="-")}, nodes)
    prediction = predict_app(two, {"slow": plan(0.1, (0,), 1), "quick": plan(0.01, (1,), 1)})
    assert prediction.streams["a"].frames_per_s == pytest.approx(10, rel=TOLERANCE)
    assert prediction.streams["b"].frames_per_s == pytest.approx(100, rel=TOLERANCE)
    assert prediction.streams["a"].bottleneck == "slow"


def test_latency_is_that_of_the_longest_way_and_of_the_line_in_front_of_it() -> None:
    prediction = predict_app(app(a=None), PLANS, runs={"crops": 3})
    stream = prediction.streams["a"]
    # Two more crops follow the first one, at the pace of two cores.
    assert stream.latency_s == pytest.approx(0.02 + 0.01 + 2 * 0.005, rel=TOLERANCE)
    inside = 2 + sum(model.frames_in_flight for model in PLANS.values())
    assert stream.queued_latency_s == pytest.approx(inside / stream.frames_per_s)
    gentle = predict_app(app(a=1.0), PLANS).streams["a"]
    assert gentle.queued_latency_s == gentle.latency_s


def test_a_stream_that_no_model_reads_has_no_rate() -> None:
    alone = App({"a": Stream(source="-"), "b": Stream(source="-")}, {"boxes": Model(file="-", reads=("a",))})
    assert predict_app(alone, {"boxes": PLANS["boxes"]}).streams["b"].frames_per_s == 0


def test_unknown_names_and_plans_without_times_are_refused() -> None:
    with pytest.raises(AppError, match=r"no 'crop' for that; did you mean 'crops'"):
        predict_app(app(a=None), PLANS, runs={"crop": 3})
    with pytest.raises(AppError, match="the plan of 'crops' has no times"):
        predict_app(app(a=None), {**PLANS, "crops": plan(0.0)})
