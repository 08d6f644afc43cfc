"""Options, environment, table and JSON file of all benchmarks."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.system import optional
from pipeline.system.version import VERSION

# Benchmarks import it in places of their own as well; see `pipeline.system.optional`.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
optional.hide_telemetry("openvino")

Row = Mapping[str, Any]
PACKAGES = ("numpy", "apache-tvm", "apache-tvm-ffi", "onnxruntime", "openvino")


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", type=Path, metavar="FILE", help="also write environment and rows to FILE")
    options.add_argument("--quick", action="store_true", help="fewer repetitions: under a minute")
    return options


def report(title: str, rows: Sequence[Row], caption: str, file: Path | None = None) -> None:
    """Print `rows` as a table and write them, with the environment, to `file`."""
    table = Table(title=title, caption=caption, caption_justify="left")
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in names:
        table.add_column(name, justify="right", overflow="fold")
    for row in rows:
        table.add_row(*(text(row.get(name)) for name in names))
    # Wide where nobody looks, so that a log holds whole rows instead of rich's 80 columns.
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    if file is not None:
        file.write_text(json.dumps({"environment": environment(), "rows": list(rows)}, indent=1) + "\n")


def text(value: Any) -> str:
    """Return a cell: four significant digits are more than a measurement has."""
    if value is None:
        return "-"
    return f"{value:,.4g}" if isinstance(value, float) and abs(value) < 1e4 else str(value)


def environment() -> dict[str, Any]:
    """Return what a reader needs to judge the figures."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "load_average_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "switch_interval_s": sys.getswitchinterval(),
        "packages": {
            "soc-pipeline": VERSION,
            **{name: version for name in PACKAGES if (version := installed_version(name))},
        },
        "commit": commit(),
    }


def usable_cores() -> list[int]:
    """Return the numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def processor() -> str:
    """Return the processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def installed_version(package: str) -> str | None:
    """Return the version of a package, None if it is not there."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """Return the commit of the working tree, None outside of one."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of `values` lie, by nearest rank."""
    # A value that was measured, not one between two: a 99th percentile of few samples would be made up otherwise.
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)
