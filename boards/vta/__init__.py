"""VTA, the open int8 accelerator for Zynq boards: its instructions, its simulator."""

from boards.vta.isa.config import Config
from boards.vta.isa.program import VtaProgram
from boards.vta.simulator.result import Cycles, Result, Violation
from boards.vta.simulator.simulator import simulate

__all__ = ["Config", "Cycles", "Result", "Violation", "VtaProgram", "simulate"]
