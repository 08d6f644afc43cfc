"""Shapes of a model's inputs: declared, stated by the caller, or 1.

Both may leave only a batch open: it becomes 1.
"""

from __future__ import annotations

import ast
import logging
import operator
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.core.shapes import Shapes
from pipeline.errors import ModelError, near

Pattern = Sequence[int | str | None]
"""Extents of an input: a number, the model's name for an open one, or None for a nameless one."""

logger = logging.getLogger(__name__)

# In the examples of messages: pictures of this size are common, and other extents are lengths of sequences.
PICTURE_EXTENT = 224
LENGTH = 16
COLOURS = (1, 3, 4)


@dataclass(frozen=True)
class InputShapes:
    """Shapes of all inputs, without open extents."""

    shapes: Mapping[str, tuple[int | str, ...]]
    """Shapes by input; names are those that the caller gave to extents that vary."""
    notes: tuple[str, ...] = ()
    """Assumptions, one line each."""


def resolve(model: str, declared: Mapping[str, Pattern | None], shapes: Shapes) -> InputShapes:
    """Return the shapes of a model's inputs; an open batch becomes 1.

    A batch is the first extent of an input, and wherever else the model uses its name. Raises `ModelError` if `shapes`
    does not fit, or other extents remain open; the message has options that state them. `declared` has None for an
    input whose number of dimensions is unknown.
    """
    extents = _named_extents(model, declared, shapes)
    stated_shapes = {
        name: check_shape(name, declared[name], list(shape))
        for name, shape in shapes.items()
        if name in declared and not isinstance(shape, int)
    }
    # What one input's shape says of a name holds for the others that use it.
    for name, shape in stated_shapes.items():
        for extent, number in zip(declared[name] or (), shape, strict=False):
            if isinstance(extent, str) and isinstance(number, int):
                extents.setdefault(extent, number)
    patterns = {
        name: None if pattern is None else _fill(pattern, extents)
        for name, pattern in declared.items()
        if name not in stated_shapes
    }
    batch = {pattern[0] for pattern in patterns.values() if pattern and isinstance(pattern[0], str)}
    complete: dict[str, Any] = {name: _complete(pattern, batch) for name, pattern in patterns.items()}
    if any(pattern is None or not _is_fixed(pattern) for pattern in complete.values()):
        raise ModelError(_complaint(model, patterns, complete))
    fixed_shapes = {
        name: stated_shapes[name] if name in stated_shapes else tuple(map(int, complete[name])) for name in declared
    }
    open_inputs = [name for name, pattern in patterns.items() if pattern and not _is_fixed(pattern)]
    notes = [_batch_note(model, open_inputs, patterns, fixed_shapes)] if open_inputs else []
    for note in notes:
        logger.info(note)
    return InputShapes(fixed_shapes, tuple(notes))


def check_shape(name: str, pattern: Pattern | None, shape: Sequence[int | str]) -> tuple[int | str, ...]:
    """Return the caller's shape of an input.

    Raises `ModelError` if it is none, has another number of dimensions than the input, or another extent where that has
    a fixed one.
    """
    if not all(isinstance(extent, str) or extent >= 0 for extent in shape):
        raise ModelError(f"input {name!r}: the shape {list(shape)} has an extent below 0; give a number, or a name")
    if pattern is not None and len(shape) != len(pattern):
        raise ModelError(
            f"input {name!r} has {len(pattern)} dimensions, but the given shape {list(shape)} has {len(shape)}"
        )
    for declared_extent, extent in zip(pattern or (), shape, strict=False):
        if isinstance(declared_extent, int) and declared_extent not in (0, extent):
            raise ModelError(
                f"input {name!r} has a fixed extent {declared_extent} where the shape {list(shape)} has {extent}"
            )
    return tuple(shape)


def _named_extents(model: str, declared: Mapping[str, Pattern | None], shapes: Shapes) -> dict[str, int]:
    """Return the caller's named extents, such as ``height=320``."""
    names = {extent for pattern in declared.values() for extent in pattern or () if isinstance(extent, str)}
    extents = {}
    for name, value in shapes.items():
        # A command's option cannot tell an extent from the shape of an input with one dimension.
        numbers = [value] if isinstance(value, int) else list(value)
        if name in names and name not in declared and len(numbers) == 1 and isinstance(numbers[0], int):
            extents[name] = numbers[0]
        elif name not in declared:
            candidates = f" and the extents {', '.join(sorted(names))}" if names else ""
            raise ModelError(
                f"{model} has no input {name!r}; it has {', '.join(declared)}{candidates}"
                f"{near(name, (*declared, *names))}"
            )
        elif isinstance(value, int):
            raise ModelError(f"input {name!r} is given the number {value}; give it a shape, such as [{value}]")
    return extents


def _fill(pattern: Pattern, extents: Mapping[str, int]) -> tuple[int | str | None, ...]:
    """Return a pattern with numbers for known names, also in products."""
    filled = (evaluate(extent, extents) if isinstance(extent, str) else None for extent in pattern)
    return tuple(extent if number is None else number for extent, number in zip(pattern, filled, strict=True))


def _complete(pattern: Pattern | None, batch: Collection[str]) -> Pattern | None:
    """Return a pattern with 1 for the batch."""
    if not pattern:
        return pattern
    # Names first: one input's batch may be twice that of another.
    for names in ([name for name in batch if name.isidentifier()], batch):
        pattern = _fill(pattern, dict.fromkeys(names, 1))
    return [1, *pattern[1:]] if pattern[0] is None else pattern


def _is_fixed(pattern: Pattern) -> bool:
    return all(isinstance(extent, int) for extent in pattern)


def _batch_note(
    model: str, open_inputs: Sequence[str], patterns: Mapping[str, Any], shapes: Mapping[str, Sequence[int | str]]
) -> str:
    options: dict[str, None] = {}
    for name in open_inputs:
        open_names = [extent for extent in patterns[name] if isinstance(extent, str) and extent.isidentifier()]
        if patterns[name][0] is None or any(extent in patterns for extent in open_names):
            options[_option(name, [8, *shapes[name][1:]])] = None
        else:
            options.update({_option(extent, [8]): None for extent in open_names})
    return f"{model} leaves the batch open, which becomes 1; another one is given by {' '.join(options)}"


def _complaint(model: str, patterns: Mapping[str, Pattern | None], complete: Mapping[str, Pattern | None]) -> str:
    """Return the message on open extents, with options to state them."""
    texts, options = [], []
    for name, pattern in complete.items():
        if pattern is None:
            texts.append(f"{name!r} states no shape")
            options.append(_option(name, [1, 3, PICTURE_EXTENT, PICTURE_EXTENT]))
        elif not _is_fixed(pattern):
            texts.append(
                f"{name!r} has the shape {['?' if extent is None else extent for extent in patterns[name] or ()]}"
            )
            options += _extent_options(name, pattern, patterns)
    return f"{model}: input {', '.join(texts)}; give it fixed extents, such as {' '.join(dict.fromkeys(options))}"


def _extent_options(name: str, pattern: Pattern, inputs: Iterable[str]) -> list[str]:
    open_extents = {
        extent: _example(pattern, axis) for axis, extent in enumerate(pattern) if not isinstance(extent, int)
    }
    if all(isinstance(extent, str) and extent.isidentifier() and extent not in inputs for extent in open_extents):
        return [_option(str(extent), [number]) for extent, number in open_extents.items()]
    shape = [extent if isinstance(extent, int) else _example(pattern, axis) for axis, extent in enumerate(pattern)]
    return [_option(name, shape)]


def _example(pattern: Pattern, axis: int) -> int:
    is_picture = len(pattern) == 4 and (
        (pattern[1] in COLOURS and axis > 1) or (pattern[3] in COLOURS and 0 < axis < 3)
    )
    return PICTURE_EXTENT if is_picture else LENGTH


def _option(name: str, extents: Sequence[int | str]) -> str:
    value = ",".join(map(str, extents))
    return f"--shape {shlex.quote(f'{name}={value}')}"


# What ONNX calls "float" and "double" has another name elsewhere.
_FRAMES = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)?|double|complex(64|128)")


def check_dtype(model: str, name: str, dtype: str) -> None:
    """Raise `ModelError` for an input or output in another dtype."""
    if not _FRAMES.fullmatch(dtype):
        raise ModelError(
            f"{model}: {name!r} is of {dtype}, which arrays do not have; let the model cast it, "
            "from or to float32 for example"
        )


_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}

MOST_LETTERS = 200
"""Letters of the longest sum or product; longer texts are damage."""


def evaluate(text: str, extents: Mapping[str, int]) -> int | None:
    """Return the extent of a text like ``past_length + 1``, or None.

    `text`: a name, or whole numbers and names that are added, subtracted, multiplied or divided.
    """
    if text in extents:
        return extents[text]
    # Most are plain names, and a model may have thousands.
    if text.isidentifier() or len(text) > MOST_LETTERS:
        return None
    try:
        return _evaluate(ast.parse(text.strip(), mode="eval").body, extents)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _evaluate(node: ast.expr, extents: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return extents[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_evaluate(node.left, extents), _evaluate(node.right, extents))
    raise ValueError(f"{ast.dump(node)} is no extent")
