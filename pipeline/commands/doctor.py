"""``soc-pipeline doctor``: what a board or a bundle needs, checked on this machine."""

from __future__ import annotations

import argparse

from pipeline import PROJECT
from pipeline.commands.shared import console

HELP = "Check drivers, libraries, cameras, power and packages of this machine, with the command that mends each fault."
EXAMPLE = "soc-pipeline doctor raspberry-pi-5-hailo8 --source camera:/dev/video0"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "request", metavar="BOARD | BUNDLE", nargs="?", help="what it has to run; by default, what is here is checked"
    )
    parser.add_argument(
        "--source", action="append", default=[], metavar="SOURCE", help="a camera or stream that it has to read"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(options: argparse.Namespace) -> int:
    """Check and print; status 1 if something is missing or wrong."""
    from pipeline.doctor import packages
    from pipeline.doctor.machine import Machine
    from pipeline.doctor.request import make_request
    from pipeline.doctor.subjects import examine

    machine, request = Machine(), make_request(options.request, options.source)
    with console.progress("looking at this machine"):
        checks, environment = examine(machine, request), packages.describe()
        listed_packages = packages.list_packages(machine)
    faults = sum(check.is_fault for check in checks)
    if options.json:
        console.print_json({"environment": environment, "packages": listed_packages, "checks": checks})
        return int(faults > 0)
    out = console.console()
    installed = {package.name: package.installed for package in listed_packages if package.installed}
    absent = {package.name: package.extra for package in listed_packages if not package.installed}
    for line in (
        f"{PROJECT} {', '.join(environment.values())}",
        f"Installed: {', '.join(map(' '.join, installed.items()))}",
        f"Not installed: {', '.join(f'{name} [{extra}]' for name, extra in absent.items()) or 'nothing'}",
    ):
        out.print(line, soft_wrap=True)
    table = console.table("Checks", "what", "state", "finding", "remedy")
    for check in checks:
        table.add_row(check.name, check.state, check.finding, check.remedy)
    out.print(table)
    out.print(f"{faults} of {len(checks)} missing or wrong" if faults else "Nothing is missing or wrong")
    return int(faults > 0)
