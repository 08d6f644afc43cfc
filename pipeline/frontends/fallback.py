"""Conversion: import in rounds, failed operators moving to islands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from pipeline.core.packed_model import SourceRuntime
from pipeline.errors import ModelError
from pipeline.model.imported_model import ImportedModel, Island

MOST_ATTEMPTS = 50
"""Attempts to import a model. Operators that are alike fail together: exports of language models need a dozen."""

MOST_NAMED = 5
"""Operators of an island that a message names."""

UNKNOWN = "not supported"
"""Reason of an operator whose kind has no converter."""

Error = TypeVar("Error", bound=Exception)


class OperatorRefused(Exception):
    """Raised when an operator cannot be imported with its stated type.

    `is_alone` is True if its operands are at fault, so that others like it may succeed.
    """

    def __init__(self, operator: Any, title: str, cause: str, *, is_alone: bool = False) -> None:
        super().__init__(cause)
        self.operator, self.title, self.reason, self.is_alone = operator, title, cause, is_alone


class IslandRefused(Exception):
    """Raised when the library does not take an island; says why."""

    def __init__(self, cause: str, number: int = 0) -> None:
        super().__init__(cause)
        self.number = number


class Conversion(ABC):
    """A model on its way to Relax.

    A format says by a subclass what its operators are, and how a model is imported of which some are in islands.
    `operators` are those that outputs depend on, in order; others know them by their places in it. With `fallback`,
    those that cannot be imported go into islands.
    """

    def __init__(self, title: str, operators: Sequence[Any], library: SourceRuntime, *, fallback: bool) -> None:
        self.title, self.operators, self.library, self.fallback = title, operators, library, fallback

    @abstractmethod
    def import_model(self, reasons: Mapping[int, str]) -> tuple[ImportedModel, Sequence[bytes]]:
        """Import the model with these operators in islands.

        Raises `OperatorRefused` if an operator cannot be imported. Also returns the models of the islands, as far as
        `check_islands` needs them.
        """

    @abstractmethod
    def form(self, operator: Any) -> tuple[Any, ...]:
        """Return an operator's kind and its common cause of failure."""

    @abstractmethod
    def describe(self, operator: Any, cause: str) -> str:
        """Name an unsupported operator with its cause, if any."""

    def seeds(self, reasons: Mapping[int, str]) -> Mapping[int, str]:
        """Return the operators for islands, from the unimportable ones."""
        return reasons

    def is_hopeless(self, _cause: str) -> bool:
        """Check for a cause that excludes the library too."""
        return False

    def suspects(self, island: Island) -> Sequence[str]:
        """Return an island's operators its library may lack."""
        return island.operators

    def check_islands(self, packed_models: Sequence[bytes]) -> None:  # noqa: B027 - a library may have all operators
        """Raise `IslandRefused` for an operator missing in the library.

        A custom operator is missing, for example.
        """

    def run(self, reasons: Mapping[int, str]) -> ImportedModel:
        """Import the model.

        Whether TVM can import an operator shows only when it tries. Raises `ModelError` if neither TVM nor the library
        has an operator, or, without fallback, TVM has it not.
        """
        reasons = dict(reasons)
        for _ in range(MOST_ATTEMPTS):
            seeds = self.seeds(reasons)
            if seeds and (not self.fallback or any(map(self.is_hopeless, seeds.values()))):
                raise self._unsupported(seeds)
            try:
                model, packed_models = self.import_model(seeds)
            except OperatorRefused as error:
                refusal = without_frames(error)
            else:
                self._check(model.islands, packed_models)
                return model
            if not self.fallback:
                raise ModelError(f"{self.title}: TVM cannot import {refusal.title}: {refusal.reason}")
            refused = dict.fromkeys(self._alike(refusal), refusal.reason)
            # An island is refused only for what it would hand out.
            if refused.keys() <= reasons.keys():
                raise ModelError(
                    f"{self.title}: {refusal.reason}, so that frames have no place for it; end the model before it"
                )
            reasons |= refused
        raise ModelError(f"{self.title}: TVM cannot import operators of more than {MOST_ATTEMPTS} kinds")

    def _alike(self, refusal: OperatorRefused) -> Collection[int]:
        """Return a refused operator's number and its equals'."""
        form = self.form(refusal.operator)
        return [
            index
            for index, operator in enumerate(self.operators)
            if operator == refusal.operator or (not refusal.is_alone and self.form(operator) == form)
        ]

    def _check(self, islands: Sequence[Island], packed_models: Sequence[bytes]) -> None:
        try:
            self.check_islands(packed_models)
        except IslandRefused as error:
            names = ", ".join(self.suspects(islands[error.number])[:MOST_NAMED])
            raise ModelError(
                f"{self.title} uses operators that neither TVM nor {self.library.title} has: {names}: {error}"
            ) from None

    def _unsupported(self, reasons: Mapping[int, str]) -> ModelError:
        complaints: dict[Any, str] = {}
        for index, cause in reasons.items():
            operator = self.operators[index]
            text = self.describe(operator, "" if cause == UNKNOWN else cause)
            complaints.setdefault((self.form(operator)[0], cause), text)
        texts = "; ".join(complaints.values())
        return ModelError(f"{self.title} uses operators that are not supported: {texts}{self.library.remedy}")


def without_frames(error: Error) -> Error:
    """Return an error without its traceback.

    The frames of a traceback hold TVM's builder, which warns when it dies unfinished.
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
