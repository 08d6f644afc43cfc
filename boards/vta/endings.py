"""What may be wrong with a program as a whole, known when no module can go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from boards.vta.instructions import Finish, Instruction, Stage
from boards.vta.machine import Machine, pops
from boards.vta.order import Clock, Order
from boards.vta.rules import Broken


def broken(
    instructions: Sequence[Instruction], machine: Machine[Clock], order: Order, *, hardware: bool
) -> Iterator[tuple[int, Broken]]:
    """Yield each rule that a program breaks, with an instruction to blame; -1 if there is none."""
    stuck = machine.waiting()
    if stuck:
        waits = (
            f"{index} ({instructions[index].stage.name.lower()}) waits for {_listed(machine, index)}" for index in stuck
        )
        yield min(stuck), ("deadlock", "; ".join(waits))
    for taker, tokens in machine.left():
        others = f", nor {len(tokens) - 1} more" if len(tokens) > 1 else ""
        yield tokens[0].index, ("token", f"nobody takes its token for {taker.name.lower()}{others}")
    yield from _finish(instructions)
    if not stuck and instructions and isinstance(instructions[-1], Finish):
        for index in order.unknown(Stage.COMPUTE):
            yield index, ("finish", "no token tells FINISH that this is over")
    if hardware:
        yield from _first(instructions)


def _listed(machine: Machine[Clock], index: int) -> str:
    return " and ".join(machine.awaited(index))


def _finish(instructions: Sequence[Instruction]) -> Iterator[tuple[int, Broken]]:
    last = len(instructions) - 1
    for index, each in enumerate(instructions[:-1]):
        if isinstance(each, Finish):
            yield index, ("finish", "only the last instruction may be FINISH")
    if not instructions or not isinstance(instructions[-1], Finish):
        yield last, ("finish", "the last instruction must be FINISH")


def _first(instructions: Sequence[Instruction]) -> Iterator[tuple[int, Broken]]:
    """On a board, the done flag of the last program stays until compute begins, so that must be at once."""
    for index, each in enumerate(instructions):
        if each.stage is Stage.COMPUTE:
            if pops(each):
                yield index, ("finish", "the first instruction of compute waits; until then, an old done flag is seen")
            return
