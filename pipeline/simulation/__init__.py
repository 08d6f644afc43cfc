"""Simulation of a plan on a board that is not here, by discrete events."""

from __future__ import annotations

from pipeline.simulation.result import SimulatedStage, Simulation
from pipeline.simulation.run import OVERHEAD_S, simulate

__all__ = ["OVERHEAD_S", "SimulatedStage", "Simulation", "simulate"]
