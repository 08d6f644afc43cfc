"""Islands of PyTorch's operators -> one list of calls."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

from pipeline.core.packed_model import PackedPart


def merge(parts: Sequence[PackedPart], inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
    """Return one packed model of `parts`, see `pipeline.executor.torch_program`."""
    # Behind all numbers that parts have in common.
    fresh_numbers = itertools.count(1 + max(number for part in parts for number in (*part.inputs, *part.outputs)))
    calls = []
    for part in parts:
        program = json.loads(part.model)
        numbers = dict(zip(program["inputs"], part.inputs, strict=True))
        numbers.update(zip(program["outputs"], part.outputs, strict=True))

        def number(value: int, numbers: dict[int, int] = numbers) -> int:
            if value not in numbers:
                numbers[value] = next(fresh_numbers)
            return numbers[value]

        for name, arguments, keywords, result in program["calls"]:
            renumbered_keywords = {keyword: _renumber(argument, number) for keyword, argument in keywords.items()}
            calls.append([name, _renumber(arguments, number), renumbered_keywords, number(result)])
    return json.dumps({"inputs": list(inputs), "calls": calls, "outputs": list(outputs)}).encode()


def _renumber(argument: Any, number: Callable[[int], int]) -> Any:
    """Return an argument with renumbered values, subgraphs' excepted."""
    if isinstance(argument, list):
        return [_renumber(item, number) for item in argument]
    return {"value": number(argument["value"])} if isinstance(argument, dict) and "value" in argument else argument
