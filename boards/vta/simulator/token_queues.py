"""TokenQueues: fetch, command queues, and dependence token queues between modules."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from boards.vta.isa.instructions import HardwareModule, Instruction

T = TypeVar("T")

# The depths of `cmd_queue_list` and `dep_queue_list` in VTA's vivado.tcl.
COMMANDS = 512
"""Instructions in a board's command queue, until fetching stops."""

TOKENS = 1024
"""Tokens in a board's queue, until pushing waits."""


@dataclass(frozen=True)
class DependenceToken(Generic[T]):
    """Token between modules; `payload` belongs to the queues' user.

    Attributes
    ----------
    index : int
        The instruction that pushed it.
    """

    index: int
    payload: T


class TokenQueues(Generic[T]):
    """Execution order of instructions; their effects are the user's.

    Modules execute their instructions in order.  An instruction takes its tokens, executes, then pushes its
    own; here that is one step, which other modules cannot tell from the real thing.

    Parameters
    ----------
    instructions : sequence of Instruction
        The stream.
    with_limits : bool
        True if the queues are as short as on a board.
    """

    def __init__(self, instructions: Sequence[Instruction], *, with_limits: bool) -> None:
        self._instructions = instructions
        # The functional simulator's queues grow: as many places as instructions are no limit.
        self._commands_limit = COMMANDS if with_limits else len(instructions)
        self._tokens_limit = TOKENS if with_limits else len(instructions)
        self._next_fetch = 0
        self._commands: dict[HardwareModule, deque[int]] = {module: deque() for module in HardwareModule}
        self._tokens: dict[tuple[int, int], deque[DependenceToken[T]]] = {
            # Of neighbours only: load and store have no queue between them.
            (giver, taker): deque()
            for giver in HardwareModule
            for taker in HardwareModule
            if abs(giver - taker) == 1
        }
        self._fetch()

    def ready(self) -> list[int]:
        """Return the executable instructions, at most one per module."""
        return [queue[0] for queue in self._commands.values() if queue and not self.awaited_tokens(queue[0])]

    def next_instructions(self) -> list[int]:
        """Return the next instruction of every busy module."""
        return [queue[0] for queue in self._commands.values() if queue]

    def awaited_tokens(self, index: int) -> tuple[str, ...]:
        """Describe the tokens an instruction waits for, if any."""
        instruction = self._instructions[index]
        givers = [giver for giver in pops(instruction) if not self._queue(giver, instruction)]
        takers = [
            taker for taker in pushes(instruction) if len(self._tokens[instruction.module, taker]) >= self._tokens_limit
        ]
        return (
            *(f"a token of {HardwareModule(giver).name.lower()}" for giver in givers),
            *(f"room for a token for {HardwareModule(taker).name.lower()}" for taker in takers),
        )

    def offered_tokens(self, index: int) -> list[DependenceToken[T]]:
        """Return the tokens for a ready instruction."""
        instruction = self._instructions[index]
        return [self._queue(giver, instruction)[0] for giver in pops(instruction)]

    def take(self, index: int) -> list[DependenceToken[T]]:
        """Begin a ready instruction and return its tokens."""
        instruction = self._instructions[index]
        self._commands[instruction.module].popleft()
        # Room in its queue: fetch goes on where it was stopped.
        self._fetch()
        return [self._queue(giver, instruction).popleft() for giver in pops(instruction)]

    def give(self, index: int, payload: T) -> None:
        """End an instruction: push its tokens."""
        instruction = self._instructions[index]
        for taker in pushes(instruction):
            self._tokens[instruction.module, taker].append(DependenceToken(index, payload))

    def remaining_tokens(self) -> Iterator[tuple[HardwareModule, list[DependenceToken[T]]]]:
        """Yield the remaining tokens with their destination module."""
        for (_, taker), queue in self._tokens.items():
            if queue:
                yield HardwareModule(taker), list(queue)

    def _queue(self, giver: int, taker: Instruction) -> deque[DependenceToken[T]]:
        return self._tokens[giver, taker.module]

    def _fetch(self) -> None:
        """Route instructions in order until a queue is full."""
        while self._next_fetch < len(self._instructions):
            queue = self._commands[self._instructions[self._next_fetch].module]
            if len(queue) >= self._commands_limit:
                return
            queue.append(self._next_fetch)
            self._next_fetch += 1


def pops(instruction: Instruction) -> list[int]:
    """Return modules to take tokens from; flags without a neighbour do nothing."""
    return _neighbours(instruction.module, has_previous=instruction.pop_prev, has_next=instruction.pop_next)


def pushes(instruction: Instruction) -> list[int]:
    """Return the modules to give tokens to."""
    return _neighbours(instruction.module, has_previous=instruction.push_prev, has_next=instruction.push_next)


def _neighbours(module: HardwareModule, *, has_previous: bool, has_next: bool) -> list[int]:
    neighbours = [module - 1] if has_previous and module > HardwareModule.LOAD else []
    return [*neighbours, module + 1] if has_next and module < HardwareModule.STORE else neighbours
