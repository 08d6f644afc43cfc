"""Islands -> one."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.core.packed_model import PackedPart


def merge(_parts: Sequence[PackedPart], _inputs: Sequence[int], _outputs: Sequence[int]) -> bytes | None:
    """Return None: an island stays one of its own."""
    return None
