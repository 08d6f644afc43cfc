"""Damaged files of plans are read as plans, or refused in one line, soon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.core.plan.plan import Plan, decode, encode
from pipeline.errors import PipelineError
from tests.support.mutations import LIMIT, damage, damaged_json
from tests.support.small_plans import skip_plan
from tests.support.time_limits import time_limit

# NumPy's, of a dtype "a", which it still knows.
pytestmark = pytest.mark.filterwarnings("ignore:Data type alias:DeprecationWarning")

DAMAGES: dict[str, Callable[[bytes, int], bytes]] = {"bytes": damage, "values": damaged_json}


def read_again(path: Path) -> str:
    """Write the plan in a file again, if it is one, or return what its error says."""
    try:
        with time_limit(LIMIT):
            plan = Plan.load(path)
    except PipelineError as error:
        return str(error)
    return "" if decode(encode(plan), "again") == plan else "it was written\nas another plan"


def fuzz(kind: str, path: Path, seeds: range) -> None:
    data = encode(skip_plan().with_options("second", weights="float16", target={"mattr": ["+neon"]}))
    for seed in seeds:
        path.write_bytes(DAMAGES[kind](data, seed))
        try:
            message = read_again(path)
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        assert len(message.splitlines()) <= 1, f"seed {seed}: {message}"


@pytest.mark.parametrize("kind", DAMAGES)
def test_some_damages(tmp_path: Path, kind: str) -> None:
    fuzz(kind, tmp_path / "plan.json", range(60))


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGES)
def test_many_damages(tmp_path: Path, kind: str) -> None:
    fuzz(kind, tmp_path / "plan.json", range(1000, 2500))
