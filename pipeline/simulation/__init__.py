"""Simulation of a plan on an absent board, by discrete events."""

from __future__ import annotations

from pipeline.simulation.arrivals import EVEN, POISSON, read_arrivals
from pipeline.simulation.result import SimulatedStage, Simulation
from pipeline.simulation.run import OVERHEAD_S, simulate

__all__ = ["EVEN", "OVERHEAD_S", "POISSON", "SimulatedStage", "Simulation", "read_arrivals", "simulate"]
