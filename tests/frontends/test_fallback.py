"""The loop of attempts: operators that are alike are left to the library together, until all others can be imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pipeline.core.packed_model import SourceRuntime
from pipeline.errors import ModelError
from pipeline.frontends.fallback import MOST_ATTEMPTS, UNKNOWN, Conversion, IslandRefused, OperatorRefused
from pipeline.model.imported_model import ImportedModel, Island

# An installed package stands for the library.
TOY = SourceRuntime("toy", "Toy", "numpy", "litert", "numpy")
MISSING = SourceRuntime("toy", "Toy", "no_such_package", "litert", "no_such_module")


class Words(Conversion):
    """Operators are words; those in capitals cannot be imported, and others of their first letter neither."""

    def __init__(self, text: str, *, fallback: bool = True, library: SourceRuntime = TOY) -> None:
        super().__init__("'words'", text.split(), library, fallback=fallback)
        self.attempts: list[list[str]] = []
        self.alone = False
        self.lacks = ""

    def import_model(self, reasons: Mapping[int, str]) -> tuple[ImportedModel, Sequence[bytes]]:
        self.attempts.append([self.operators[place] for place in reasons])
        for place, word in enumerate(self.operators):
            if word.isupper() and (place not in reasons or word == "OPEN"):
                raise OperatorRefused(word, f"the word {word}", f"{word} is loud", is_alone=self.alone)
        islands = [Island(word, (word, f"CUSTOM {word}"), "") for word in self.attempts[-1]]
        return ImportedModel("words", None, (), islands=tuple(islands)), [word.encode() for word in self.attempts[-1]]

    def form(self, operator: str) -> tuple[Any, ...]:
        return (operator[0],)

    def describe(self, operator: str, cause: str) -> str:
        return f"{operator}{cause and ': '}{cause}"

    def is_hopeless(self, cause: str) -> bool:
        return cause == "never"

    def suspects(self, island: Island) -> Sequence[str]:
        return island.operators[1:]

    def check_islands(self, packed_models: Sequence[bytes]) -> None:
        for number, model in enumerate(packed_models):
            if model == self.lacks.encode():
                raise IslandRefused("no idea", number)


def test_what_is_alike_fails_together() -> None:
    words = Words("a B Bb c D Dd")
    assert [island.tensor for island in words.run({}).islands] == ["B", "Bb", "D", "Dd"]
    assert words.attempts == [[], ["B", "Bb"], ["B", "Bb", "D", "Dd"]]


def test_operands_at_fault_are_no_matter_of_others() -> None:
    words = Words("B Bb")
    words.alone = True
    words.run({})
    assert words.attempts == [[], ["B"]]


def test_reasons_that_are_known_spare_an_attempt() -> None:
    words = Words("a B")
    words.run({1: UNKNOWN})
    assert words.attempts == [["B"]]


def test_an_island_without_a_place_in_frames() -> None:
    with pytest.raises(ModelError, match="'words': OPEN is loud, so that frames have no place for it; end the model"):
        Words("a OPEN").run({})


def test_without_fallback() -> None:
    with pytest.raises(ModelError, match="'words': TVM cannot import the word B: B is loud"):
        Words("a B", fallback=False).run({})
    words = Words("a B Bb C", fallback=False, library=MISSING)
    with pytest.raises(ModelError) as failure:
        words.run({1: UNKNOWN, 2: UNKNOWN, 3: "so"})
    assert "'words' uses operators that are not supported: B; C: so; Toy computes them where" in str(failure.value)
    assert not words.attempts


def test_what_the_library_must_not_compute_either() -> None:
    with pytest.raises(ModelError, match=r"not supported: B: never$"):
        Words("B").run({0: "never"})


def test_what_the_library_lacks() -> None:
    words = Words("B C")
    words.lacks = "C"
    with pytest.raises(ModelError, match="'words' uses operators that neither TVM nor Toy has: CUSTOM C: no idea"):
        words.run({})


def test_attempts_end() -> None:
    words = Words(" ".join("X" * count for count in range(1, MOST_ATTEMPTS + 2)))
    words.alone = True
    with pytest.raises(ModelError, match=f"cannot import operators of more than {MOST_ATTEMPTS} kinds"):
        words.run({})
    assert len(words.attempts) == MOST_ATTEMPTS
