"""Faults are put where they can be, and tests that notice none are found out."""

from pathlib import Path

import pytest

from tools.mutate import Laboratory, changes, nearest_tests, sample

MODULE = '''"""A module: 1 + 1."""


def larger(first: int | None, second: int) -> int:
    """Return the larger one."""
    return max(first or 0, second)


def tail(items: list[int], count: int) -> list[int]:
    return items[len(items) - count :] if count < len(items) else items
'''


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("a < b", ["(a <= b)"]),
        ("a < b == c", ["(a <= b == c)", "(a < b != c)"]),
        ("a - b * c", ["(a + b * c)", "(b / c)"]),
        ("a and not b", ["(a or not b)", "(b)"]),
        ("x = items[1:]", ["2"]),
        ("x = True", ["False"]),
        ("np.floor(x) + min(x)", ["(np.floor(x) - min(x))", "np.ceil", "max"]),
        ("call()", ["pass"]),
        ("x += y", ["pass"]),
        ("self.x = y", ["pass"]),
        ("raise Error", ["pass"]),
        # What is not computed, and what Python notices by itself.
        ('"""Text of 1 + 1."""', []),
        ("x = y", []),
        ("def f(x: int | None) -> int | str: ...", []),
        ("Number = int | None", []),
        ('x = f"{1 + 1}"', []),
        ("if TYPE_CHECKING:\n    call()", []),
    ],
)
def test_faults_of_a_line(source: str, faults: list[str]) -> None:
    assert [change.after for change in changes("module.py", source.encode())] == faults


def test_a_fault_stands_in_the_text_where_it_says() -> None:
    source = "é = 1\nüber = (\n    a\n    < b\n)\n".encode()
    number, comparison = changes("module.py", source)
    assert (number.line, number.apply(source)) == (1, source.replace(b"1", b"2"))
    assert (comparison.line, comparison.apply(source).decode()) == (3, "é = 1\nüber = (\n    (a <= b)\n)\n")
    assert str(comparison) == "module.py:3: a < b  ->  (a <= b)"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project with a module, a test with a gap, and its folder's other tests."""
    for folder in ("pipeline/room", "tests/room", "tests/hall"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pipeline/__init__.py").write_text("")
    (tmp_path / "pipeline/room/larger.py").write_text(MODULE)
    (tmp_path / "tests/room/test_larger.py").write_text(
        "from pipeline.room.larger import larger, tail\n\n"
        "def test() -> None:\n    assert (larger(2, 1), larger(1, 2), tail([1, 2], 3)) == (2, 2, [1, 2])\n"
    )
    (tmp_path / "tests/hall/test_all.py").write_text("from pipeline.room import larger\n")
    (tmp_path / "tests/hall/test_nothing.py").write_text("")
    return tmp_path


def test_the_nearest_tests_bear_the_name_or_import_the_module(tree: Path) -> None:
    file = "pipeline/room/larger.py"
    assert nearest_tests(tree, file) == [("tests/room/test_larger.py",), ("tests/room",)]
    (tree / "tests/room/test_larger.py").unlink()
    assert nearest_tests(tree, file) == [("tests/hall/test_all.py",), ("tests/room",)]
    assert nearest_tests(tree, "pipeline/room/other.py") == [("tests/room",)]
    assert nearest_tests(tree, "pipeline/attic/other.py") == [("tests",)]


@pytest.mark.slow
def test_a_fault_that_the_nearest_tests_miss_is_shown_to_the_folder(tree: Path) -> None:
    (tree / "tests/room/test_other.py").write_text(
        "import pipeline.room.larger as module\n\ndef test() -> None:\n    assert module.tail([1, 2], 1) == [2]\n"
    )
    source = (tree / "pipeline/room/larger.py").read_bytes()
    (change,) = (
        change for change in changes("pipeline/room/larger.py", source) if "len(items) + count" in change.after
    )
    trial = Laboratory(tree, 60).try_out(change)
    assert (trial.result, trial.tests) == ("killed", ("tests/room",))


@pytest.mark.slow
def test_a_gap_in_the_tests_shows(tree: Path) -> None:
    laboratory = Laboratory(tree, 60, ["tests/room/test_larger.py"])
    source = (tree / "pipeline/room/larger.py").read_bytes()
    results = {
        change.after: laboratory.try_out(change).result
        for change in changes("pipeline/room/larger.py", source)
        if change.after in {"min", "(count <= len(items))"}
    }
    assert results == {"min": "killed", "(count <= len(items))": "survived"}
    assert (tree / "pipeline/room/larger.py").read_bytes() == source


def test_tests_that_fail_anyway_say_nothing(tree: Path) -> None:
    (tree / "tests/room/test_larger.py").write_text("def test() -> None:\n    assert False\n")
    change = sample(tree, ["pipeline"], 1, 0)[0]
    assert Laboratory(tree, 60, ["tests/room/test_larger.py"]).try_out(change).result == "no tests"


def test_a_seed_makes_a_choice(tree: Path) -> None:
    assert sample(tree, ["pipeline/room/larger.py"], 4, 1) == sample(tree, ["pipeline"], 4, 1)
    assert len(sample(tree, ["pipeline"], 1000, 1)) == len(changes("", MODULE.encode()))
