"""Commands of the guide and the README work, and print what the pages show."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import boards
import pipeline
from pipeline.measure.profile import profile
from pipeline.measure.sampling import Sampling
from tests.support.snippets import Workshop, mask, refresh, snippets

pytestmark = pytest.mark.thorough

# Each builds a small model several times, in processes of their own.
patient = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def guide(root: Path) -> str:
    return (root / "docs" / "guide.md").read_text(encoding="utf-8")


@pytest.fixture
def workshop(tmp_path: Path, root: Path) -> Iterator[Workshop]:
    """A folder on a machine of two cores, as the pages say; what is started from here has them only."""
    for name in ("onnx", "onnxruntime", "sklearn", "PIL"):
        pytest.importorskip(name)
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("this machine has one core, and the pages' plans have two")
    os.sched_setaffinity(0, sorted(cores)[:2])
    try:
        yield Workshop(tmp_path, root)
    finally:
        os.sched_setaffinity(0, cores)


@patient
def test_the_guide_prints_what_it_shows_and_the_readme_runs_behind_it(
    root: Path, guide: str, workshop: Workshop
) -> None:
    _measure_quickly(workshop, guide)
    workshop.run_page(guide)
    # Commands that both pages have in the same words have run by then.
    workshop.run_page((root / "README.md").read_text(encoding="utf-8"), but=guide)
    assert {"plan.json", "model.bundle", "results.npz"} <= {path.name for path in workshop.folder.iterdir()}


def _measure_quickly(workshop: Workshop, guide: str) -> None:
    """Put times into the session's cache that the pages' commands would measure for a quarter of a minute."""
    (program,) = (snippet for snippet in snippets(guide) if snippet.title == "make_model.py")
    (workshop.folder / program.title).write_text(program.text, encoding="utf-8")
    workshop.run(f"python {program.title}")
    # Medians of several turns all the same: from one frame or two, a busy machine made the plan cut elsewhere.
    sampling = Sampling(turn_s=0.2, stream_s=0.3)
    profile(pipeline.read(workshop.folder / "model.onnx"), boards.get("host"), sampling=sampling)


def test_no_block_of_the_guide_is_overlooked(guide: str) -> None:
    blocks = snippets(guide)
    assert guide.count("\n```") == 2 * len(blocks)
    assert {block.language for block in blocks} == {"python", "sh", "text"}


TABLE = "┏━━┓\n┃ operator ┃ compute ms ┃\n┡━━┩\n│ conv1    │      1.987 │\n└──┘\n"


@pytest.mark.parametrize(
    ("expected", "printed", "refreshed"),
    [
        (TABLE, TABLE.replace("1.987", "13.25"), TABLE.replace("1.987", "13.25")),
        (TABLE, TABLE.replace("━━", "━━━━"), TABLE.replace("━━", "━━━━")),
        ("50 frames, 70.1 frames/s\n", "50 frames, 101 frames/s\n", "50 frames, 101 frames/s\n"),
        ("largest error 0, by then\n", "largest error 2.1e-07, by then\n", "largest error 2.1e-07, by then\n"),
        ("a\n...\nd 1.5\n", "a\nb\nc\nd 2.5\n", "a\n...\nd 2.5\n"),
        ("...\nd\n", "a\nd\n", "...\nd\n"),
        ("a\n...\n", "a\n", "a\n...\n"),
        (f"a\n...\n{TABLE}...\nd\n", f"a\nb\n{TABLE}c\nd\n", f"a\n...\n{TABLE}...\nd\n"),
    ],
)
def test_output_that_may_differ(expected: str, printed: str, refreshed: str) -> None:
    assert refresh(expected, printed) == refreshed


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        (TABLE, TABLE.replace("conv1", "conv2")),
        (TABLE, TABLE.replace("compute ms", "share")),
        (TABLE, TABLE.replace("1.987", "none")),
        ("50 frames, 70.1 frames/s\n", "49 frames, 70.1 frames/s\n"),
        ("a\n", "a\nb\n"),
        ("a\nb\n", "a\n"),
        ("a\nb\n", "a\nc\nb\n"),
        ("a\n...\nd\ne\n", "a\nd\nc\ne\n"),
    ],
)
def test_output_that_is_another(expected: str, printed: str) -> None:
    with pytest.raises(AssertionError):
        refresh(expected, printed)


def test_numbers_that_are_the_models_own_are_compared() -> None:
    masked = mask("net: 8 operators, 634.4 MFLOP\n│ float32[1, 32] │\n")
    assert list(masked.values()) == ["net: 8 operators, # MFLOP", "|float32[1, 32]|"]
