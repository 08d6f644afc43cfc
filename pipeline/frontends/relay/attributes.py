"""Attributes of an operator call, by name and kind, with Relay's defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.errors import ModelError
from pipeline.frontends.relay.scalars import DTYPES

# They repeat what the operands' shapes say, or only matter to passes of the compiler.
_IDLE = {
    "auto_scheduler_rewritten_layout", "channels", "hash", "kernel_size", "meta_schedule_original_shape",
    "out_layout", "span", "units",
}  # fmt: skip
_LARGEST = 2**62


class Attributes:
    """Attributes of a call that note their reading."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values
        self._read = set(_IDLE)

    def replace_values(self, **values: object) -> Attributes:
        """Return attributes with other values, sharing the notes of reading."""
        # The set is shared, not copied: what the copy's reader asks for counts as read for the original as well.
        attributes = Attributes({**self._values, **values})
        attributes._read = self._read
        return attributes

    def unread(self) -> list[str]:
        """Return the names of meaningful attributes nobody read."""
        # An attribute that nobody knows might change the result, so that it is refused unless it says nothing.
        unread_values = {name: value for name, value in self._values.items() if name not in self._read}
        return [name for name, value in unread_values.items() if isinstance(value, np.ndarray) or value not in _NOTHING]

    def get(self, name: str) -> object:
        """Return an attribute unchanged, or None."""
        self._read.add(name)
        return self._values.get(name)

    def has(self, name: str) -> bool:
        """Check for an attribute other than None."""
        return self.get(name) is not None

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a whole number.

        Raises `ModelError` if it is something else, or missing without a default; so do the other methods.
        """
        return _integer(name, self._value_or_default(name, default))

    def number(self, name: str, default: float | None = None) -> float:
        """Return a number."""
        value = self._value_or_default(name, default)
        if isinstance(value, int | float):
            return float(value)
        raise ModelError(f"expected a number in {name!r}, found {_describe(value)}")

    def flag(self, name: str, default: bool = False) -> bool:
        """Return True or False."""
        value = self._value_or_default(name, default)
        # Text has True and False, JSON 0 and 1.
        if value in (0, 1):
            return bool(value)
        raise ModelError(f"expected True or False in {name!r}, found {_describe(value)}")

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text."""
        value = self._value_or_default(name, default)
        if isinstance(value, str):
            # An empty text stands for an attribute that is not set.
            return value or default or ""
        raise ModelError(f"expected a text in {name!r}, found {_describe(value)}")

    def choice(self, name: str, *choices: str) -> str:
        """Return one of `choices`, by default the first."""
        value = self.text(name, choices[0])
        if value not in choices:
            raise ModelError(f"{name}={value!r} is not supported; supported are {', '.join(choices)}")
        return value

    def dtype(self, name: str = "dtype", default: str | None = None) -> str:
        """Return a dtype."""
        value = self.text(name, default)
        if value not in DTYPES:
            raise ModelError(f"dtype {value!r} in {name!r} is not supported; supported are {', '.join(sorted(DTYPES))}")
        return value

    def integers(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        """Return a list of integers; a single one makes a list."""
        value = self._value_or_default(name, default)
        items = value if isinstance(value, list | tuple) else [value]
        return [_integer(name, item) for item in items]

    def positive(self, name: str, count: int, default: int = 1) -> list[int]:
        """Return `count` numbers of at least 1; one may stand for all."""
        numbers = self.integers(name, [default])
        numbers = numbers * count if len(numbers) == 1 else numbers
        if len(numbers) != count or min(numbers) < 1:
            raise ModelError(f"expected {count} numbers of at least 1 in {name!r}, found {_describe(numbers)}")
        return numbers

    def padding(self, axes: int, name: str = "padding") -> list[int]:
        """Return the paddings before all axes, then after them.

        The attribute has 1, `axes` or twice as many numbers.
        """
        numbers = self.integers(name, [0])
        widths = {1: numbers * 2 * axes, axes: numbers * 2, 2 * axes: numbers}.get(len(numbers))
        if widths is None or min(widths) < 0:
            raise ModelError(
                f"expected 1, {axes} or {2 * axes} numbers of at least 0 in {name!r}, found {_describe(numbers)}"
            )
        return widths

    def _value_or_default(self, name: str, default: object) -> object:
        value = self.get(name)
        if value is None and default is None:
            raise ModelError(f"the attribute {name!r} is missing")
        return default if value is None else value


_NOTHING: tuple[object, ...] = (None, "", 0, False, [], {})


def _integer(name: str, value: object) -> int:
    is_integer = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if is_integer and abs(value) < _LARGEST:  # type: ignore[arg-type]
        return int(value)  # type: ignore[call-overload, no-any-return]
    raise ModelError(f"expected whole numbers in {name!r}, found {_describe(value)}")


def _describe(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
