"""Stages on unlike cores: a bundle has code for both kinds, and a worker takes that of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Cluster, Device
from pipeline.core.plan.plan import Plan
from pipeline.executor import core_estimates, host_target
from pipeline.executor.bundle import Bundle
from pipeline.split.graph import Graph
from pipeline.system.affinity import process_cores
from tests.support.bundles import rewrite
from tests.support.onnx_models import Arrays, assert_close, frame

CORES = process_cores()
WIDE, NARROW = "x86-64-v3", "x86-64"
"""Two kinds of cores with vectors of eight and of four; every machine that runs the one runs the other."""

pytestmark = [
    pytest.mark.skipif(host_target.machine() != "x86_64", reason="the kinds of cores are x86's"),
    pytest.mark.skipif(len(CORES) < 2, reason="one core is like itself"),
    pytest.mark.skipif("avx2" not in host_target.flags(), reason=f"this machine has no {WIDE}"),
]


def unlike_board() -> Board:
    clusters = (Cluster("big", CORES[:1]), Cluster("little", CORES[1:2], 0.5, {"mcpu": NARROW}))
    return Board("unlike", (Device("cpu", clusters=clusters, target={"kind": "llvm", "mcpu": WIDE}),))


def on_cores(plan: Plan, *cores: int) -> Plan:
    stages = tuple(replace(stage, cores=cores, replicas=len(cores)) for stage in plan.stages)
    return replace(plan, stages=stages)


@pytest.fixture(scope="module")
def bundle(graph: Graph) -> Bundle:
    return pipeline.build(graph, on_cores(pipeline.plan(graph, unlike_board(), stages=1), *CORES[:2]))


def mark_variants(bundle: Bundle) -> Bundle:
    """Return the bundle with the parameters of its narrow code doubled, so that answers tell which code was run."""
    (code,) = bundle.codes
    variants = [
        variant.with_parameters({name: array * 2 for name, array in variant.parameters.items()})
        for variant in code.variants
    ]
    return Bundle(bundle.plan, [code.with_parameters({}, variants)])


def answers(bundle: Bundle, values: Arrays) -> Arrays:
    with pipeline.load(bundle) as running:
        result: Arrays = running.submit(values).result()
    return result


def test_both_codes_give_the_same(bundle: Bundle, graph: Graph, tmp_path: Path) -> None:
    (code,) = bundle.codes
    assert [each.processor for each in code.family] == [WIDE, NARROW]
    assert "avx2" in code.features
    assert "avx2" not in code.variants[0].features
    bundle.save(tmp_path / "saved.bundle")
    values = frame(graph)
    expected = answers(pipeline.build(graph, pipeline.plan(graph, stages=1)), values)
    for plan in (bundle.plan, on_cores(bundle.plan, CORES[0]), on_cores(bundle.plan, CORES[1])):
        reloaded = Bundle.load(tmp_path / "saved.bundle")
        assert_close(answers(Bundle(plan, reloaded.codes), values), expected, 1e-5)


def test_a_worker_runs_the_code_of_its_cores(bundle: Bundle, graph: Graph, tmp_path: Path) -> None:
    values = frame(graph)
    mark_variants(bundle).save(tmp_path / "marked.bundle")
    marked = Bundle.load(tmp_path / "marked.bundle")
    first, second = (answers(Bundle(on_cores(marked.plan, core), marked.codes), values) for core in CORES[:2])
    assert_close(first, answers(bundle, values), 1e-5)
    assert not np.allclose(first["y"], second["y"])
    # Both at once: replicas take frames in turn.
    with pipeline.load(marked) as running:
        results = [future.result() for future in [running.submit(values) for _ in range(40)]]
    kinds = [min((first, second), key=lambda kind: float(np.abs(result["y"] - kind["y"]).max())) for result in results]
    assert {id(kind) for kind in kinds} == {id(first), id(second)}
    for result, kind in zip(results, kinds, strict=True):
        assert_close(result, kind, 1e-5)


def test_files_are_shared_and_older_bundles_load(bundle: Bundle, graph: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "saved.bundle"
    bundle.save(folder)
    names = {path.name for path in folder.iterdir()}
    assert names >= {"stage0.so", "stage0.core1.so", "stage0.parameters"}
    (stage,) = json.loads((folder / "manifest.json").read_text())["stages"]
    assert stage["variants"][0]["parameters"] == stage["parameters"]
    Bundle.load(folder).save(tmp_path / "again.bundle")
    assert {path.name for path in (tmp_path / "again.bundle").iterdir()} == names

    def drop(content: dict[str, list[dict[str, object]]]) -> None:
        for key in ("variants", "processor"):
            del content["stages"][0][key]

    rewrite(folder, drop)
    (code,) = Bundle.load(folder).codes
    assert (code.processor, code.variants) == ("", ())
    assert_close(answers(Bundle.load(folder), frame(graph)), answers(bundle, frame(graph)), 1e-5)


def test_parameters_that_are_set_reach_all_cores(bundle: Bundle, graph: Graph) -> None:
    """Variants keep weights in other layouts, and would go on with the former values."""
    (code,) = bundle.codes
    values = {name: array * 0 for name, array in code.parameters.items()}
    with pipeline.load(Bundle(on_cores(bundle.plan, CORES[1]), bundle.codes)) as running:
        running.set_params("stage0", values)
        result = running.submit(frame(graph)).result()
    changed = answers(Bundle(on_cores(bundle.plan, CORES[0]), [code.with_parameters(values)]), frame(graph))
    assert_close(result, changed, 1e-5)


def test_cores_that_hardly_differ_share_their_code() -> None:
    cpu = unlike_board().devices[0]
    assert len(core_estimates.variants(cpu)) == 1
    alike = replace(cpu, clusters=(cpu.clusters[0], replace(cpu.clusters[1], target={"mcpu": "haswell"})))
    assert core_estimates.variants(alike) == [], "kernels follow from sizes that are the same"
    assert core_estimates.variants(replace(cpu, clusters=())) == []


def test_estimates_decide_where_there_are_some() -> None:
    target = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76", "mattr": ["+dotprod"]}
    clusters = (Cluster("big", (4, 5)), Cluster("little", (0, 1), 0.4, {"mcpu": "cortex-a55"}))
    (variant,) = core_estimates.variants(Device("cpu", clusters=clusters, target=target))
    assert variant.target is not None
    assert (variant.target["mcpu"], list(variant.target["mattr"])) == ("cortex-a55", ["+dotprod"])  # type: ignore[call-overload]
