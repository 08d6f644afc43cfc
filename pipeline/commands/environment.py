"""``soc-pipeline environment``: versions and packages for questions and fault reports."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import Requirement

from pipeline import PROJECT
from pipeline.commands.shared import console
from pipeline.errors import InputError
from pipeline.executor import host_target
from pipeline.system import affinity
from pipeline.system.distribution import FULL
from pipeline.system.version import VERSION

HELP = "Show versions, the processor, and which optional packages are installed."
EXAMPLE = "soc-pipeline environment --json"

# What only those need who change this project's code.
DEVELOPMENT = ("test", "dev", "docs", "all")

# They change how stages are compiled, placed on cores or cached.
VARIABLES = ("SOC_PIPELINE_CACHE", "OMP_NUM_THREADS", "TVM_NUM_THREADS", "TVM_BIND_THREADS")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(options: argparse.Namespace) -> int:
    """Print it; status 1 for a missing or unsuitable required package."""
    environment = describe()
    if options.json:
        console.print_json(environment)
    else:
        _show(environment)
    return 0 if all(package.fits for package in environment.packages if not package.extra) else 1


@dataclass(frozen=True)
class Package:
    """Requested distribution; `extra` is empty for required ones."""

    name: str
    extra: str
    required: str
    installed: str
    fits: bool


@dataclass(frozen=True)
class Environment:
    """Environment of the package, besides models and boards."""

    version: str
    python: str
    system: str
    processor: str
    cores: int
    packages: tuple[Package, ...]
    variables: Mapping[str, str]


def describe() -> Environment:
    """Describe this process's environment without loading any package.

    Raises
    ------
    InputError
        If this project runs from its source without being installed, so that nobody knows what it asks for.
    """
    try:
        packages = tuple(_packages())
    except metadata.PackageNotFoundError:
        message = f"{FULL} is not installed in {sys.prefix}; run: pip install -e ."
        raise InputError(message) from None
    return Environment(
        version=VERSION,
        python=f"{platform.python_implementation()} {platform.python_version()} in {sys.prefix}",
        system=platform.platform(),
        processor=host_target.full_name() or platform.machine(),
        cores=len(affinity.process_cores()),
        packages=packages,
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
    )


def _packages() -> Iterator[Package]:
    extras = ("", *(metadata.metadata(FULL).get_all("Provides-Extra") or ()))
    requirements = [Requirement(text) for text in metadata.requires(FULL) or ()]
    for extra in extras:
        if extra in DEVELOPMENT:
            continue
        for requirement in requirements:
            # An extra may name others, which are listed themselves.
            if requirement.name != FULL and _belongs_to(requirement, extra):
                yield _package(requirement, extra)


def _belongs_to(requirement: Requirement, extra: str) -> bool:
    if requirement.marker is None:
        return not extra
    # A marker without "extra", such as one of Python's version, holds with every extra and belongs to none.
    is_always_needed = requirement.marker.evaluate({"extra": ""})
    return is_always_needed != bool(extra) and requirement.marker.evaluate({"extra": extra})


def _package(requirement: Requirement, extra: str) -> Package:
    try:
        installed = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        installed = ""
    # A development version of a dependency is its user's choice.
    fits = bool(installed) and requirement.specifier.contains(installed, prereleases=True)
    return Package(requirement.name, extra, str(requirement.specifier), installed, fits)


def _show(environment: Environment) -> None:
    out = console.console()
    lines = [
        f"{PROJECT} {environment.version}, {environment.python}",
        f"{environment.system}, {environment.processor}, {environment.cores} cores",
        *(f"{name}={value}" for name, value in environment.variables.items()),
    ]
    for line in lines:
        out.print(line, soft_wrap=True)
    table = console.table("Packages", "extra", "package", "installed", "fits", "remedy")
    for package in environment.packages:
        table.add_row(
            package.extra or "(always)",
            package.name,
            package.installed or "-",
            _verdict(package),
            _remedy(package),
        )
    out.print(table)


def _verdict(package: Package) -> str:
    if package.fits:
        return "yes"
    return f"no: needs {package.required}" if package.installed else "-"


def _remedy(package: Package) -> str:
    if package.fits:
        return ""
    return f"pip install '{package.name}{package.required}'"
