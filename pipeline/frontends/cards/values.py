"""Values in texts of metadata: JSON or Python literals, never evaluated."""

from __future__ import annotations

import ast
from typing import Any

import msgspec

from pipeline.core.card_file import LARGEST
from pipeline.errors import InputError


def parse_value(text: Any, subject: str) -> Any:
    """Return the value in a text of JSON or Python's literals, or what is no text.

    Raises `InputError` if it is neither.
    """
    if not isinstance(text, str):
        return text
    if len(text) > LARGEST:
        raise InputError(f"{subject} has more than {LARGEST >> 20} MiB")
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text)
    # All that its parser raises on text that is no literal, is nested too deeply, or has too many digits.
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise InputError(f"{subject} is neither JSON nor a literal of Python: {text[:40]!r}") from None


def parse_numbers(value: Any, subject: str) -> tuple[float, ...]:
    """Return one number or three, or raise `InputError`."""
    numbers = parse_value(value, subject)
    numbers = numbers if isinstance(numbers, list | tuple) else [numbers]
    if len(numbers) not in (1, 3) or any(isinstance(n, bool) or not isinstance(n, int | float) for n in numbers):
        raise InputError(f"{subject} is {numbers!r}, not one number or three")
    return tuple(map(float, numbers))


def parse_labels(value: Any, subject: str) -> tuple[str, ...]:
    """Return names from a list, or from a mapping of class numbers; raise `InputError` for others."""
    names = parse_value(value, subject)
    if isinstance(names, dict):
        # JSON has texts for the numbers.
        by_number = {int(key): name for key, name in names.items() if str(key).isdecimal() and len(str(key)) < 9}
        if sorted(by_number) != list(range(len(names))):
            raise InputError(f"{subject} has not one name for each class from 0 to {len(names) - 1}")
        names = [by_number[number] for number in range(len(names))]
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{subject} is no list of names")
    # A literal may hold half of a surrogate pair, which no manifest can.
    return tuple(name.encode("utf-8", "backslashreplace").decode() for name in names)
