"""Choices: what tuning has found, as the rules and the writing of a stage ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pipeline.executor.schedules.anchors import Fused
    from pipeline.executor.schedules.tiled.packing import Layout


class Choices(Protocol):
    """Better ones than the rules' own, where there are any."""

    def layout(self, form: Layout) -> Layout:
        """Return the layout to take in place of a rule's."""

    def kernel(self, name: str, function: Any, anchor: Fused | None) -> Any | None:
        """Return a function scheduled, or None for the general schedule; with an anchor, its rule writes it anyway."""
