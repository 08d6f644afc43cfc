"""Machine: fetch, the three command queues, and the four queues of dependence tokens between the modules."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from boards.vta.instructions import Instruction, Stage

T = TypeVar("T")

COMMANDS = 512
"""Instructions that wait for one module on a board, until fetching stops."""

TOKENS = 1024
"""Tokens that one queue holds on a board; whoever wants to push one more waits."""


@dataclass(frozen=True)
class Token(Generic[T]):
    """What one module tells another; `payload` is whatever the user of the machine attaches.

    Attributes
    ----------
    index : int
        The instruction that pushed it.
    """

    index: int
    payload: T


class Machine(Generic[T]):
    """The order in which instructions may execute; what they do is up to its user.

    Modules execute their instructions in order.  An instruction takes its tokens, executes, then pushes its
    own; here that is one step, which other modules cannot tell from the real thing.

    Parameters
    ----------
    instructions : sequence of Instruction
        The stream.
    bounded : bool
        Whether the queues are as short as on a board.
    """

    def __init__(self, instructions: Sequence[Instruction], *, bounded: bool) -> None:
        self._instructions = instructions
        self._commands_limit = COMMANDS if bounded else len(instructions)
        self._tokens_limit = TOKENS if bounded else len(instructions)
        self._fetched = 0
        self._commands: dict[Stage, deque[int]] = {stage: deque() for stage in Stage}
        self._tokens: dict[tuple[int, int], deque[Token[T]]] = {
            (giver, taker): deque() for giver in Stage for taker in Stage if abs(giver - taker) == 1
        }
        self._fetch()

    def ready(self) -> list[int]:
        """Return the instructions that may execute next, at most one per module."""
        return [queue[0] for queue in self._commands.values() if queue and not self.awaited(queue[0])]

    def waiting(self) -> list[int]:
        """Return the next instruction of each module that has one."""
        return [queue[0] for queue in self._commands.values() if queue]

    def awaited(self, index: int) -> tuple[str, ...]:
        """Return what an instruction waits for, in words; nothing if it may execute."""
        each = self._instructions[index]
        missing = [giver for giver in pops(each) if not self._queue(giver, each)]
        full = [taker for taker in pushes(each) if len(self._tokens[each.stage, taker]) >= self._tokens_limit]
        return (
            *(f"a token of {Stage(giver).name.lower()}" for giver in missing),
            *(f"room for a token for {Stage(taker).name.lower()}" for taker in full),
        )

    def offered(self, index: int) -> list[Token[T]]:
        """Return the tokens that a ready instruction is about to consume."""
        each = self._instructions[index]
        return [self._queue(giver, each)[0] for giver in pops(each)]

    def take(self, index: int) -> list[Token[T]]:
        """Begin a ready instruction, and return the tokens that it consumes."""
        each = self._instructions[index]
        self._commands[each.stage].popleft()
        self._fetch()
        return [self._queue(giver, each).popleft() for giver in pops(each)]

    def give(self, index: int, payload: T) -> None:
        """End an instruction: push its tokens."""
        each = self._instructions[index]
        for taker in pushes(each):
            self._tokens[each.stage, taker].append(Token(index, payload))

    def left(self) -> Iterator[tuple[Stage, list[Token[T]]]]:
        """Yield the tokens that nobody took, with the module they are for."""
        for (_, taker), queue in self._tokens.items():
            if queue:
                yield Stage(taker), list(queue)

    def _queue(self, giver: int, taker: Instruction) -> deque[Token[T]]:
        return self._tokens[giver, taker.stage]

    def _fetch(self) -> None:
        """Route instructions in order, until the queue of the next one is full."""
        while self._fetched < len(self._instructions):
            queue = self._commands[self._instructions[self._fetched].stage]
            if len(queue) >= self._commands_limit:
                return
            queue.append(self._fetched)
            self._fetched += 1


def pops(each: Instruction) -> list[int]:
    """Return the modules whose token an instruction takes; a flag without a neighbour has no effect."""
    return _neighbours(each.stage, previous=each.pop_prev, following=each.pop_next)


def pushes(each: Instruction) -> list[int]:
    """Return the modules that it gives a token to."""
    return _neighbours(each.stage, previous=each.push_prev, following=each.push_next)


def _neighbours(stage: Stage, *, previous: bool, following: bool) -> list[int]:
    before = [stage - 1] if previous and stage > Stage.LOAD else []
    return [*before, stage + 1] if following and stage < Stage.STORE else before
