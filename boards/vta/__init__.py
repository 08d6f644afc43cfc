"""VTA, the open int8 accelerator for Zynq boards: its instructions, its simulator."""

from boards.vta.config import Config
from boards.vta.program import Program
from boards.vta.result import Cycles, Result, Violation
from boards.vta.simulator import simulate

__all__ = ["Config", "Cycles", "Program", "Result", "Violation", "simulate"]
