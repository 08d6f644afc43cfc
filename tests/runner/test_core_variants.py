"""Code for several kinds of cores: each worker takes that of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.board.board import Board, Cluster, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.executor import host_target
from pipeline.executor.bundle import Bundle
from pipeline.executor.stage_code import StageCode
from pipeline.system.affinity import process_cores
from tests.support.arithmetic_bundles import ArithmeticCodes
from tests.support.arithmetic_graphs import Code
from tests.support.bundles import rewrite
from tests.support.runner import Library

CORES = process_cores()

pytestmark = [
    pytest.mark.skipif(len(CORES) < 2, reason="one core is like itself"),
    # Arm's cores tell themselves what they are.
    pytest.mark.skipif(host_target.machine() == "aarch64", reason="the kinds of cores are the plan's"),
]


def variant(code: StageCode, factor: int, processor: str) -> StageCode:
    return StageCode(
        code.module,
        {"code": Code(factor).parameter},
        library=code.library,
        machine=code.machine,
        features=code.features,
        processor=processor,
    )


def save(codes: ArithmeticCodes, path: Path, cores: tuple[int, ...]) -> Path:
    """Write a stage that multiplies by 2, by 3 on the little core, by 5 on a core that this machine has not."""
    general = codes[1].with_parameters({"code": Code(2).parameter})
    kinds = [variant(codes[1], 3, "little"), variant(codes[1], 5, "huge")]
    clusters = (
        Cluster("big", CORES[:1], target={"mcpu": "big"}),
        Cluster("little", CORES[1:2], 0.5, {"mcpu": "little"}),
    )
    board = Board("unlike", (Device("cpu", clusters=clusters),))
    source, result = TensorSpec("x", (2,), "int64"), TensorSpec("y", (2,), "int64")
    stage = StagePlan("s", "cpu", (source,), (result,), cores=cores, queue_depth=2)
    plan = Plan("unlike", "", board, (source,), (result,), (stage,))
    Bundle(plan, [general.with_parameters({}, kinds)]).save(path)
    return path


def answer(library: Library, bundle: Path) -> int:
    with library.open(bundle) as running:
        (result,) = running.stream([{"x": np.array([1, 7])}])
    return int(result.arrays["y"][1])


def test_a_worker_runs_the_code_of_its_cores(library: Library, codes: ArithmeticCodes, tmp_path: Path) -> None:
    assert answer(library, save(codes, tmp_path / "big.bundle", CORES[:1])) == 14
    assert answer(library, save(codes, tmp_path / "little.bundle", CORES[1:2])) == 21
    assert answer(library, save(codes, tmp_path / "both.bundle", CORES[:2])) == 14
    assert answer(library, save(codes, tmp_path / "any.bundle", ())) == 14


def test_replicas_have_code_of_their_own(library: Library, codes: ArithmeticCodes, tmp_path: Path) -> None:
    bundle = save(codes, tmp_path / "replicas.bundle", CORES[:2])

    def share_out(content: Any) -> None:
        content["plan"]["stages"][0]["replicas"] = 2

    rewrite(bundle, share_out)
    with library.open(bundle) as running:
        results = running.stream([{"x": np.array([number, 7])} for number in range(200)])
    assert {int(result.arrays["y"][1]) for result in results} <= {14, 21}


def test_code_for_extensions_that_are_not_here_is_left_out(
    library: Library, codes: ArithmeticCodes, tmp_path: Path
) -> None:
    bundle = save(codes, tmp_path / "wide.bundle", CORES[1:2])

    def widen(content: Any) -> None:
        content["stages"][0]["variants"][0]["features"] = ["avx1024"]

    rewrite(bundle, widen)
    assert answer(library, bundle) == 14
