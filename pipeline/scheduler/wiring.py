"""Wiring: a plan as tables of numbers for workers.

Each tensor has one slot per memory that it is needed in, and one for its plain array when the caller gives
or gets it or when it leaves its memory.  A slot is emptied by its last reader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.core.plan.plan import Plan


@dataclass(frozen=True)
class SlotRead:
    """One input of a stage."""

    slot: int
    """Slot of the tensor in the stage's memory."""
    source: int | None = None
    """Slot of the array to copy it from when `slot` is still empty; None if its maker uses the same memory."""

    @property
    def slots(self) -> tuple[int, ...]:
        """Slots required by this reader."""
        return (self.slot,) if self.source is None else (self.slot, self.source)


@dataclass(frozen=True)
class SlotWrite:
    """One output of a stage."""

    slot: int | None = None
    """Slot for the tensor, for later stages of the same memory, if there are any."""
    array: int | None = None
    """Slot for its array, for stages of other memories and for the caller, if there are any."""


@dataclass(frozen=True)
class StageWiring:
    """Slots read and written by a stage, and its neighbour stages."""

    reads: tuple[SlotRead, ...]
    writes: tuple[SlotWrite, ...]
    """Wirings in the order of the stage's inputs and outputs."""
    predecessors: tuple[int, ...]
    successors: tuple[int, ...]
    """Numbers of the stages it reads from, and of those that read from it."""

    @property
    def copies(self) -> bool:
        """True if tensors may change memory here."""
        return any(read.source is not None for read in self.reads) or any(
            write.array is not None for write in self.writes
        )


@dataclass(frozen=True)
class Wiring:
    """The tables of a whole pipeline."""

    stages: tuple[StageWiring, ...]
    """Stages in the plan's order."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    """Slots of the arrays that the caller gives and gets."""
    readers: tuple[int, ...]
    """Number of reads of each slot, the caller included."""

    @property
    def roots(self) -> tuple[int, ...]:
        """Stages on model inputs only: frames begin there."""
        return tuple(number for number, stage in enumerate(self.stages) if not stage.predecessors)

    @property
    def leaves(self) -> tuple[int, ...]:
        """Stages without readers: frames end after all of them."""
        return tuple(number for number, stage in enumerate(self.stages) if not stage.successors)


def wire(plan: Plan, memories: Sequence[str]) -> Wiring:
    """Return the tables of `plan`, for one memory name per stage.

    Equal names pass tensors by reference. The plan was checked when it was made: each tensor has one maker, and it
    comes first.
    """
    makers = {spec.name: number for number, stage in enumerate(plan.stages) for spec in stage.outputs}
    made_in = {name: memories[number] for name, number in makers.items()}
    # A state is never brought in: its stage keeps it, and fills its empty slot.
    kept = {state.input.name for state in plan.states}
    # Reads claim slots, writes only look them up: what nobody reads gets none, and is forgotten by its maker.
    slots = _Slots()
    reads = [
        tuple(
            _read(slots, spec.name, memories[number], memories[number] if spec.name in kept else made_in.get(spec.name))
            for spec in stage.inputs
        )
        for number, stage in enumerate(plan.stages)
    ]
    # The caller reads the results before the writes are laid out, or nobody would leave arrays for it.
    outputs = tuple(slots.claim(spec.name, None) for spec in plan.outputs)
    writes = [
        tuple(SlotWrite(slots.find(spec.name, memories[number]), slots.find(spec.name, None)) for spec in stage.outputs)
        for number, stage in enumerate(plan.stages)
    ]
    inputs = tuple(slots.claim(spec.name, None) for spec in plan.inputs)
    predecessors = [
        tuple(sorted({makers[spec.name] for spec in stage.inputs if spec.name in makers})) for stage in plan.stages
    ]
    successors = [
        tuple(reader for reader, makers_of in enumerate(predecessors) if number in makers_of)
        for number in range(len(plan.stages))
    ]
    stages = tuple(StageWiring(*parts) for parts in zip(reads, writes, predecessors, successors, strict=True))
    # A reader that may have to copy counts for both slots, whether or not it finds the copy of another.
    counts = Counter(outputs) + Counter(slot for stage in stages for read in stage.reads for slot in read.slots)
    return Wiring(stages, inputs, outputs, tuple(counts[slot] for slot in range(len(slots))))


class _Slots:
    """Numbers of (tensor, memory), with memory None for plain arrays."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str | None], int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def claim(self, name: str, memory: str | None) -> int:
        return self._numbers.setdefault((name, memory), len(self._numbers))

    def find(self, name: str, memory: str | None) -> int | None:
        return self._numbers.get((name, memory))


def _read(slots: _Slots, name: str, memory: str, made_in: str | None) -> SlotRead:
    return SlotRead(slots.claim(name, memory), None if made_in == memory else slots.claim(name, None))
