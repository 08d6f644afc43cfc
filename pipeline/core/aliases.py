"""Aliases: names of tensors that stand for other tensors."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.errors import ModelError


def follow(name: str, aliases: Mapping[str, str]) -> str:
    """Return the tensor at the end of a name's aliases.

    Raises
    ------
    ModelError
        If the name leads back to itself.
    """
    target = name
    for _ in range(len(aliases) + 1):
        if target not in aliases:
            return target
        target = aliases[target]
    raise ModelError(f"tensor {target!r} is a copy of itself; give each tensor of the model a name of its own")
