"""VTA, the open int8 accelerator: instruction set, compiler, simulator, driver."""

from boards.vta.isa.config import Config
from boards.vta.isa.program import VtaProgram
from boards.vta.simulator.result import Cycles, Result, Violation
from boards.vta.simulator.simulator import simulate

__all__ = ["Config", "Cycles", "Result", "Violation", "VtaProgram", "simulate"]
