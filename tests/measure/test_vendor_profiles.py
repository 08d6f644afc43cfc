"""Profiles of vendors' tools become times of a device's groups."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.errors import InputError
from pipeline.measure.cost_cache import CostCache, ImportRecord, key_of_import
from pipeline.measure.profile import profile
from pipeline.measure.vendor_profiles import LayerTime, VendorProfile, read_profile, share_out
from pipeline.split.graph import Graph
from tests.support.onnx_models import node, save
from tests.support.sampling import QUICK

TRTEXEC = [
    {"count": 2094},
    {"name": "Reformatting CopyNode for Input Tensor 0 to a", "timeMs": 209.4, "averageMs": 0.1, "percentage": 10},
    {"name": "a + b", "timeMs": 1465.8, "averageMs": 0.7, "percentage": 70},
    {"name": "y", "timeMs": 418.8, "averageMs": 0.2, "percentage": 20},
]
RKNN = """
D RKNN: [05:07:06.566]                                    Network Layer Information Table
D RKNN: [05:07:06.566] --------------------------------------------------------------------------------------------
D RKNN: [05:07:06.566] ID   OpType           DataType Target InputShape                    OutputShape            \
Cycles(DDR/NPU/Total)    Time(us)     MacUsage(%)          WorkLoad(0/1/2)      RW(KB)       FullName
D RKNN: [05:07:06.566] --------------------------------------------------------------------------------------------
D RKNN: [05:07:06.566] 1    InputOperator    FLOAT16  CPU    \\                             (1,16,16,1)            \
0/0/0                    5            \\                    0.0%/0.0%/0.0%       0            InputOperator:x
D RKNN: [05:07:06.566] 2    Softmax          FLOAT16  NPU    (1,16,16,1),(33600)           (1,16,16,1),...        \
45457/0/45457            455          \\                    100.0%/0.0%/0.0%     525          Softmax:a
Total Operator Elapsed Per Frame Time(us): 500
"""
HAILO_CSV = "net_name,fps,hw_only_fps,num_of_frames,hw_latency,overall_latency\nresnet/resnet,250.0,251.2,3272,2.9,\n"
HAILO_TEXT = """
Network a/a: 100% | 3272 | FPS: 218.10 | ETA: 00:00:00
=======
Summary
=======
FPS     (hw_only)                 = 201.5
        (streaming)               = 200
Latency (hw)                      = 12.8354 ms
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "profile.txt"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "tool", "seconds", "layers"),
    [
        (json.dumps(TRTEXEC), "trtexec", 1e-3, {("a", "b"): 0.7e-3, ("y",): 0.2e-3}),
        (RKNN, "RKNN", 5e-4, {("x",): 5e-6, ("a",): 4.55e-4}),
        (HAILO_CSV, "hailortcli", 4e-3, {}),
        (HAILO_TEXT, "hailortcli", 5e-3, {}),
        ("Network a/a: 100% | 3272 | FPS: 250 | ETA: 00:00:00", "hailortcli", 4e-3, {}),
    ],
)
def test_times_are_those_of_the_tool(
    text: str, tool: str, seconds: float, layers: dict[tuple[str, ...], float], tmp_path: Path
) -> None:
    name, result = read_profile(write(tmp_path, text))
    assert tool in name
    assert result.seconds == pytest.approx(seconds)
    assert {layer.names: layer.seconds for layer in result.layers}.items() >= {
        names: pytest.approx(value) for names, value in layers.items()
    }.items()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[1]",
        "net_name,fps\n",
        "net_name,fps\na,0\n",
        "FPS: none",
        "ID OpType",
        "ID Time(us) FullName\n1 - Add:a",
    ],
)
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no times of a known tool: trtexec"):
        read_profile(write(tmp_path, text))
    with pytest.raises(InputError, match="cannot read the profile"):
        read_profile(tmp_path)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    nodes = [node("Softmax", "x", "a"), node("Softmax", "a", "b"), node("ReduceMean", "b", "y", axes=[1])]
    return pipeline.read(save(tmp_path_factory.mktemp("vendor") / "m.onnx", nodes, {"x": (16, 16)}, ["y"]))


@pytest.mark.parametrize(
    ("layers", "expected", "share"),
    [
        # A layer of several groups is divided as the estimates are, and what has no name goes to those without a layer.
        ({("a", "b"): 0.4, ("copy",): 0.6}, [0.25, 0.25, 0.5], 0.0),
        ({("a", "b"): 0.6, ("copy",): 0.4}, [0.3, 0.3, 0.4], 0.6),
        ({("a",): 0.3, ("b",): 0.3, ("y",): 0.2}, [0.35, 0.35, 0.3], 0.8),
        ({("b",): 4.0}, [0.0, 1.0, 0.0], 1.0),
        ({}, [0.25, 0.25, 0.5], 0.0),
    ],
)
def test_groups_take_the_times_of_their_layers(
    layers: dict[tuple[str, ...], float], expected: list[float], share: float, graph: Graph
) -> None:
    vendor = VendorProfile(1.0, tuple(LayerTime(names, seconds) for names, seconds in layers.items()))
    seconds, known = share_out(vendor, graph, [1.0, 1.0, 2.0])
    assert (list(seconds), known) == (pytest.approx(expected), pytest.approx(share))


def test_a_group_that_the_device_cannot_run_stays_so(graph: Graph) -> None:
    seconds, _ = share_out(VendorProfile(1.0, (LayerTime(("b",), 1.0),)), graph, [1.0, math.inf, 3.0])
    assert list(seconds) == pytest.approx([0.25, math.inf, 0.75])


def test_imported_times_are_measured_ones_of_equal_devices(graph: Graph, tmp_path: Path) -> None:
    npus = tuple(Device(f"npu{core}", "vta", memory="npu", target={"options": {"core": core}}) for core in range(2))
    board, cache = Board("some", (Device("cpu", cores=(0,)), *npus)), CostCache(tmp_path)
    cache.put(ImportRecord(key_of_import(graph.digest, board, npus[0]), "eval_perf", (1e-3, 2e-3, None)))
    for fresh in (False, True):
        report = profile(graph, board, cache=CostCache(tmp_path, fresh=fresh), sampling=QUICK)
        assert report.measured.keys() == {"cpu", "npu0", "npu1"}
        assert report.seconds["npu1"] == report.contended["npu1"] == (1e-3, 2e-3, math.inf)
        assert report.tools == {"npu0": "eval_perf", "npu1": "eval_perf"}
