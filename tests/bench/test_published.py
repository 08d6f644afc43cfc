"""Published figures are planned as they were measured, and compared per device."""

from __future__ import annotations

import datetime as dt
import math

import pytest

pytest.importorskip("onnx")

import published
from published_models import NETWORKS, graph

import boards
from boards.published import PublishedFigure, figures
from pipeline.prediction.predict import predict


def figure(**changes: object) -> PublishedFigure:
    fields = {"board": "rk3588", "device": "cpu", "model": "squeezenet", "precision": "float32", "runtime": "ncnn",
              "source": "", "date": dt.date(2026, 1, 1), "ms": 10.0}  # fmt: skip
    return PublishedFigure(**(fields | changes))  # type: ignore[arg-type]


def test_each_figure_has_a_network() -> None:
    assert {each.model for each in figures()} <= set(NETWORKS)


def test_cores_of_a_figure_are_those_it_names_or_the_fastest() -> None:
    little = published.figure_board(figure(cores=(1, 2)))
    assert [cluster.name for cluster in little.device("cpu").clusters] == ["little"]
    assert published.figure_board(figure(threads=2)).device("cpu").cores == boards.get("rk3588").device("cpu").cores[:2]
    assert not little.links


def test_a_chip_is_planned_with_the_caller_beside_it() -> None:
    board = published.figure_board(figure(device="npu1", precision="int8"))
    assert [device.name for device in board.devices] == ["cpu", "npu1"]


def test_another_clock_changes_arithmetic() -> None:
    cpu = published.figure_board(figure(board="pynq-z2", clock_hz=1.3e9)).device("cpu")
    shipped = boards.get("pynq-z2").device("cpu")
    assert cpu.flops == pytest.approx(2 * shipped.flops)
    assert cpu.bytes_per_s == shipped.bytes_per_s


def test_a_figure_is_compared_with_one_plan_of_the_model() -> None:
    (comparison,) = published.compare([figure(threads=1)])
    board = boards.get("rk3588").device("cpu")
    plan = published.plan_figure(graph("squeezenet"), figure(threads=1))
    assert [(stage.device, stage.cores) for stage in plan.stages] == [("cpu", board.cores[:1])]
    assert comparison.seconds == predict(plan).latency_s
    assert comparison.ratio == pytest.approx(0.01 / comparison.seconds)


def test_rows_are_means_of_fitted_and_held_out_models() -> None:
    seconds = {"squeezenet": (0.005, 0.02, math.inf), "mnasnet": (0.0125,)}
    comparisons = [
        published.Comparison(figure(model=model), second, "" if second < math.inf else "refused")
        for model, times in seconds.items()
        for second in times
    ]
    rows = {(row["device"], row["rows"]): row for row in published.summarize(comparisons)}
    assert not published.is_held_out("squeezenet")
    fitted, held_out = rows["rk3588 cpu", "fitted"], rows["rk3588 cpu", "held out (few)"]
    assert fitted["mean"] == pytest.approx(1)
    assert (fitted["figures"], fitted["refused"], fitted["within_20"]) == (2, 1, 0)
    assert (held_out["lowest"], held_out["highest"]) == pytest.approx((0.8, 0.8))
