"""Packages: this version, its Python packages, and variables that change what it does."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from typing import TYPE_CHECKING

from pipeline.doctor.check import MISSING, OK, WRONG, Check
from pipeline.doctor.machine import Machine
from pipeline.doctor.request import Request
from pipeline.executor import host_target
from pipeline.system import affinity
from pipeline.system.distribution import FULL, IS_FULL, RUNTIME
from pipeline.system.optional import is_installed
from pipeline.system.version import VERSION

if TYPE_CHECKING:
    from packaging.requirements import Requirement

DISTRIBUTION = FULL if IS_FULL else RUNTIME

# What only those need who change this project's code.
DEVELOPMENT = ("test", "dev", "docs", "all")

# They change how stages are compiled, placed on cores or cached.
VARIABLES = ("SOC_PIPELINE_CACHE", "OMP_NUM_THREADS", "TVM_NUM_THREADS", "TVM_BIND_THREADS")


@dataclass(frozen=True)
class Package:
    """Requested distribution; `extra` is empty for required ones."""

    name: str
    extra: str
    required: str
    installed: str
    fits: bool


def describe() -> dict[str, str]:
    """Describe this process's environment for reports of faults."""
    return {
        "version": VERSION,
        "python": f"{platform.python_implementation()} {platform.python_version()} in {sys.prefix}",
        "system": platform.platform(),
        "processor": f"{host_target.full_name() or platform.machine()}, {len(affinity.process_cores())} cores",
        **{name: f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ},
    }


def examine(machine: Machine, _: Request) -> Iterator[Check]:
    """Check required packages, and those of extras that are installed."""
    packages = list_packages(machine)
    for package in packages:
        if not package.fits and (package.installed or not package.extra):
            finding = f"{package.installed or 'absent'}, needs {package.required}"
            remedy = f"pip install '{package.name}{package.required}'"
            yield Check(package.name, WRONG if package.installed else MISSING, finding, remedy)
    if not machine.package(DISTRIBUTION):
        yield Check("packages", MISSING, f"{DISTRIBUTION} is not installed in {sys.prefix}", "pip install -e .")
    elif all(package.fits for package in packages if not package.extra):
        yield Check("packages", OK, f"{DISTRIBUTION} {VERSION}, and what it requires")


@lru_cache(1)
def list_packages(machine: Machine) -> list[Package]:
    """Return required packages and those of extras, without loading any."""
    # A board that only runs bundles may lack what reads requirements.
    if not machine.package(DISTRIBUTION) or not is_installed("packaging"):
        return []
    from packaging.requirements import Requirement

    requirements = [Requirement(text) for text in metadata.requires(DISTRIBUTION) or ()]
    extras = ("", *(metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or ()))
    return [
        _package(machine, requirement, extra)
        for extra in extras
        for requirement in requirements
        # An extra may name others, which are listed themselves.
        if extra not in DEVELOPMENT and requirement.name != DISTRIBUTION and _belongs_to(requirement, extra)
    ]


def _belongs_to(requirement: Requirement, extra: str) -> bool:
    if requirement.marker is None:
        return not extra
    # A marker without "extra", such as one of Python's version, holds with every extra and belongs to none.
    is_always_needed = requirement.marker.evaluate({"extra": ""})
    return is_always_needed != bool(extra) and requirement.marker.evaluate({"extra": extra})


def _package(machine: Machine, requirement: Requirement, extra: str) -> Package:
    installed = machine.package(requirement.name)
    # A development version of a dependency is its user's choice.
    fits = bool(installed) and requirement.specifier.contains(installed, prereleases=True)
    return Package(requirement.name, extra, str(requirement.specifier), installed, fits)
