"""The driver writes the registers that VTA's specification names, in its order, and says who hangs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from boards.vta import Config, VtaProgram
from boards.vta.compiler.layers import MaxPool
from boards.vta.compiler.network import Network
from boards.vta.driver.driver import Driver
from boards.vta.driver.hardware import LARGEST, Registers, base, check_address
from boards.vta.driver.simulated import SimulatedBoard, SimulatedBuffer
from boards.vta.isa.config import PYNQ, ULTRA96, MemoryType
from boards.vta.isa.instructions import Finish, LoadInstruction
from pipeline.errors import BoardError, BuildError, DeviceLost
from tests.support.vta.checking import compile_chain

SHAPE = (16, 3, 5)
VALUES = np.random.default_rng(0).integers(-128, 128, SHAPE).astype(np.int8)


def copy_network(config: Config = ULTRA96) -> Network:
    return compile_chain(config, [MaxPool(SHAPE, (1, 1), (1, 1))])


class Recording(SimulatedBoard):
    """Notes each write by its physical address, and each read that found something."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.events: list[tuple[str, int, int]] = []

    def write(self, module: str, offset: int, value: int) -> None:
        self.events.append(("write", base(self.config, module) + offset, value))
        super().write(module, offset, value)

    def read(self, module: str, offset: int) -> int:
        value = super().read(module, offset)
        self.events.append(("read", base(self.config, module) + offset, value))
        return value


@pytest.mark.parametrize(("config", "first"), [(ULTRA96, 0xA000_0000), (PYNQ, 0x43C0_0000)])
def test_the_registers_are_written_in_the_order_of_the_specification(config: Config, first: int) -> None:
    board = Recording(config)
    driver = Driver(config, board)
    board_program = driver.load(copy_network(config).program)
    driver.run(board_program)
    fetch, load, compute, store = (first + number * 0x1000 for number in range(4))
    assert board.events == [
        ("write", fetch + 0x10, len(board_program.program.instructions)),
        ("write", fetch + 0x18, board_program.stream.address),
        ("write", load + 0x10, 0),
        ("write", load + 0x18, 0),
        ("write", compute + 0x20, 0),
        ("write", compute + 0x28, 0),
        ("write", store + 0x10, 0),
        ("write", fetch, 0x01),
        ("write", load, 0x81),
        ("write", compute, 0x81),
        ("write", store, 0x81),
        ("read", fetch, 0x02),
        ("read", compute + 0x18, 1),
    ]
    board.events.clear()
    driver.close()
    assert board.events == [("write", each, 0) for each in (load, compute, store)]


def test_a_program_runs_again_and_again() -> None:
    network = copy_network()
    with Driver(ULTRA96, SimulatedBoard(ULTRA96)) as driver:
        # Whatever is in memory first, programs have the addresses that they get.
        driver.load(network.program)
        board_program = driver.load(network.program)
        for values in (VALUES, VALUES[::-1]):
            board_program.memory.array[:] = network.on(values).memory
            driver.run(board_program)
            np.testing.assert_array_equal(network.results(board_program.memory.array)[0], values)


def test_registers_are_touched_in_turn() -> None:
    class Careful(Recording):
        def write(self, module: str, offset: int, value: int) -> None:
            assert self.turn.locked()
            super().write(module, offset, value)

    board = Careful(ULTRA96)
    with Driver(ULTRA96, board) as driver:
        driver.run(driver.load(copy_network().program))
    assert board.events
    assert not board.turn.locked()


class UnflushedBuffer(SimulatedBuffer):
    """Memory that the accelerator never sees again as the processor writes it."""

    def flush(self) -> None:
        pass


class UninvalidatedBuffer(SimulatedBuffer):
    """Memory whose results stay behind the processor's caches."""

    def invalidate(self) -> None:
        pass


@pytest.mark.parametrize("kind", [UnflushedBuffer, UninvalidatedBuffer])
def test_without_caches_written_back_results_would_be_wrong(kind: type[SimulatedBuffer]) -> None:
    """The simulated memory has two sides, as a board without coherent accesses has."""
    network = copy_network()
    with Driver(ULTRA96, SimulatedBoard(ULTRA96)) as driver:
        board_program = driver.load(network.program)
        memory = board_program.memory
        assert isinstance(memory, SimulatedBuffer)
        memory.array[:] = network.on(VALUES).memory
        driver.run(replace(board_program, memory=kind(memory.address, memory.array, memory.device_side)))
        assert not np.array_equal(network.results(memory.array)[0], VALUES)


def deadlocked_program() -> VtaProgram:
    """Return a program whose compute waits for a token that nobody gives."""
    return VtaProgram(
        ULTRA96, (LoadInstruction(memory_type=MemoryType.UOP, pop_prev=True), Finish()), np.zeros(4096, np.uint8), 4096
    )


def test_a_program_that_waits_for_ever_names_the_module_and_the_instruction() -> None:
    with Driver(ULTRA96, SimulatedBoard(ULTRA96), timeout_s=0.01) as driver:
        board_program = driver.load(deadlocked_program())
        with pytest.raises(DeviceLost, match=r"module compute hangs: it has not come to FINISH .* \(deadlock: .*0x81"):
            driver.run(board_program)


class Dead(SimulatedBoard):
    """Its fetch never ends."""

    def read(self, module: str, offset: int) -> int:
        del module, offset
        return 0


def test_a_board_without_a_bitstream_is_told_from_a_wrong_program() -> None:
    with Driver(ULTRA96, Dead(ULTRA96), timeout_s=0.01) as driver:
        board_program = driver.load(copy_network().program)
        with pytest.raises(DeviceLost, match=r"module fetch hangs: it has not read all .* right by the simulator"):
            driver.run(board_program)


def test_the_simulated_board_refuses_what_a_board_leaves_undefined() -> None:
    program = copy_network().program
    differences = replace(program, instructions=tuple(replace(each, push_next=False) for each in program.instructions))
    with Driver(ULTRA96, SimulatedBoard(ULTRA96), timeout_s=0.01) as driver:
        board_program = driver.load(differences)
        with pytest.raises((BuildError, DeviceLost)):
            driver.run(board_program)


@pytest.mark.parametrize(("config", "address"), [(PYNQ, 0x3FFF_F000), (ULTRA96, 0x7FFF_F000), (ULTRA96, 0x1000_0010)])
def test_memory_that_the_accelerator_does_not_reach_is_refused(config: Config, address: int) -> None:
    with pytest.raises(BoardError, match="reaches"):
        check_address(config, address, 0x2000)


def test_a_program_that_is_too_large_is_refused() -> None:
    with Driver(ULTRA96, SimulatedBoard(ULTRA96)) as driver:
        large = VtaProgram(ULTRA96, (Finish(),), np.zeros(LARGEST + 1, np.uint8), 4096)
        with pytest.raises(BoardError, match="use more stages"):
            driver.load(large)


def test_registers_are_what_the_interface_says() -> None:
    registers: Registers = SimulatedBoard(ULTRA96).registers("load")
    registers.write(0x10, 7)
    assert registers.read(0x10) == 7
