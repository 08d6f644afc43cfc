"""Layouts: alternative tiles and depths for kernel weights, likeliest first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from pipeline.executor.kernels import microarchitecture, registry
from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.conv import DirectConvolution
from pipeline.executor.kernels.matmul import Matmul
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import tiling
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.executor.tuning import workload
from pipeline.executor.tuning.search import BATCH, Proposal

SLOWER = 1.4
"""Largest factor of the best tile's estimate worth a trial."""

_KERNELS = (DirectConvolution.name, Matmul.name)
"""Kernels whose weights are packed by a layout."""


def layout_of(group: FusedGroup) -> PackedLayout | None:
    """Return a group's float32 layout, None without one of the kernel's choice."""
    if group.placeholder.kernel not in _KERNELS or group.placeholder.tuned:
        return None
    form = msgspec.json.decode(group.placeholder.form, type=PackedLayout)
    return form if form.element_channels == 1 else None


def alternatives(form: PackedLayout, cpu: Microarchitecture) -> list[PackedLayout]:
    """Return potentially better layouts, in a fixed order."""
    conv = form.conv.flatten() if form.conv.pointwise else form.conv
    cycles = {tile: tiling.cycles(tile, conv, cpu) for tile in tiling.candidates(conv, cpu, form.vectors)}
    likely = sorted((tile for tile in cycles if cycles[tile] <= SLOWER * min(cycles.values())), key=cycles.__getitem__)
    ranked_forms = [
        # A tile's largest depth is what the estimates choose; each smaller one has its turn two tiles later.
        (number + 2 * rank, replace(form, tile=tile, depth=depth))
        for number, tile in enumerate(likely)
        for rank, depth in enumerate(_depths(form, cpu))
    ]
    return [layout for _, layout in sorted(ranked_forms, key=lambda pair: pair[0]) if layout != form]


def _depths(form: PackedLayout, cpu: Microarchitecture) -> list[int]:
    """Return the possible channel depths per pass, largest first."""
    depth = form.conv.depth
    # With one place in the kernel, every depth reads the same terms in the same order.
    if form.conv.kernel == (1, 1):
        return [depth]
    return [size for size in range(depth, 0, -1) if depth % size == 0 and size >= min(depth, cpu.lanes)]


def write_with(group: FusedGroup, form: PackedLayout, cpu: Microarchitecture, cores: int) -> Any:
    """Return a group's function by another layout."""
    return group.with_body(registry.write(group.with_form(form), cpu, cores))


def text_of(form: PackedLayout) -> str:
    """Return a layout as JSON."""
    return msgspec.json.encode(form).decode()


def read(text: str, form: PackedLayout, cpu: Microarchitecture) -> PackedLayout:
    """Read a layout from JSON, or return the kernel's `form` if unsuitable."""
    try:
        layout = msgspec.json.decode(text, type=PackedLayout)
    except msgspec.MsgspecError:
        return form
    return layout if layout in alternatives(form, cpu) else form


class LayoutSearch:
    """Proposes all layouts of a group in turn, beside the kernel's own, `form`.

    An earlier search has made `trials`.
    """

    def __init__(self, group: FusedGroup, form: PackedLayout, target: Any, cores: int, trials: int) -> None:
        self._group, self._cpu, self._cores = group, microarchitecture.of_target(target), cores
        forms = [layout for layout in alternatives(form, self._cpu) if self._fits(layout)]
        # The order is always the same, so that the number of trials is enough to go on from.
        self._remaining_forms: Iterator[PackedLayout] = iter(forms[trials:])

    def candidates(self) -> list[Proposal]:
        """Return the next few layouts, if any."""
        return [self._proposal(form) for form in itertools.islice(self._remaining_forms, BATCH)]

    def tell(self, candidates: Sequence[Proposal], seconds: Sequence[float | None]) -> None:
        """Learn nothing: the order is the same anyway."""

    def _proposal(self, form: PackedLayout) -> Proposal:
        function = write_with(self._group, form, self._cpu, self._cores)
        return Proposal(workload.module_of(function), text_of(form))

    def _fits(self, form: PackedLayout) -> bool:
        """Test that an overwriting group still computes elements once."""
        group = self._group
        # A result of its own may be computed twice in places; an overwritten operand is gone after the first time.
        if not any(group.target.same_as(parameter) for parameter in group.params[:-1]):
            return True
        return registry.writes_once(group.with_form(form), self._cpu, self._cores)
