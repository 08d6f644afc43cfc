"""Subjects: one module per subject, each with ``examine(machine, request)``."""

from __future__ import annotations

from importlib import import_module

from pipeline.doctor.check import Check
from pipeline.doctor.machine import Machine
from pipeline.doctor.request import Request

MODULES = ("packages", "processor", "stages", "need", "cameras")
"""Modules of this folder, in the order in which their checks are shown."""


def examine(machine: Machine, request: Request) -> list[Check]:
    """Return the checks of all subjects that the request or the machine has."""
    modules = [import_module(f"pipeline.doctor.{name}") for name in MODULES]
    return [check for module in modules for check in module.examine(machine, request)]
