"""``soc-pipeline service``: let systemd run a command of this project."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from pipeline.commands.shared import values
from pipeline.core.files import write_atomically
from pipeline.errors import InputError

HELP = "Write a unit by which systemd starts 'serve', 'run' or 'node' with the machine, and again if it fails or hangs."
EXAMPLE = "soc-pipeline service install camera --cores 2,3 -- run /srv/model.bundle --source camera:/dev/video0"

COMMANDS = ("serve", "run", "node")

UNIT = """\
[Unit]
Description=soc-pipeline {name}
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
ExecStart={command}
WorkingDirectory={folder}
Restart=on-failure
RestartSec=2
WatchdogSec={watchdog}
# Frames that are in are finished first.
TimeoutStopSec=30
{options}NoNewPrivileges=true
ProtectSystem=full

[Install]
WantedBy={target}
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("action", choices=("install",), help="write the unit, and say how to start it")
    parser.add_argument("name", metavar="NAME", help="of the service, behind 'soc-pipeline-'")
    parser.add_argument("--system", action="store_true", help="of the machine, not of this user (needs root)")
    parser.add_argument("--user", metavar="NAME", help="with --system: as whom it runs (default: who installs it)")
    parser.add_argument("--cores", metavar="LIST", type=values.cores, help="cores that it may use, such as 0,1 or 4-7")
    parser.add_argument(
        "--watchdog", metavar="SECONDS", type=values.count, default=30, help="of silence, then it is started again"
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write the unit there; - prints it")
    parser.add_argument("command", nargs="+", metavar="-- COMMAND", help="serve, run or node, as usual")


def run(options: argparse.Namespace) -> int:
    """Write the unit."""
    command = options.command
    _check(options, command)
    text = unit(options, command)
    if str(options.output) == "-":
        print(text, end="")
        return 0
    path = options.output or _folder(options) / f"soc-pipeline-{options.name}.service"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    except OSError as error:
        raise InputError(f"cannot write {str(path)!r}: {error.strerror}; name another file with --output") from None
    manager = "systemctl" if options.system else "systemctl --user"
    print(f"{path}\nStart it with: {manager} daemon-reload && {manager} enable --now {path.name}")
    return 0


def _check(options: argparse.Namespace, command: list[str]) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", options.name):
        raise InputError(f"{options.name!r} is no name of a service; use letters, digits, '-', '_' and '.'")
    if options.user and not options.system:
        raise InputError("--user is for --system; a user's own service runs as that user")
    if command[0] not in COMMANDS:
        raise InputError(f"{command[0]!r} is behind '--', but a service runs one of {', '.join(COMMANDS)}")
    # A mistake in it is told now, and not in the log of a service that fails again and again.
    checker = _Checker(prog=f"soc-pipeline {command[0]}", add_help=False)
    import_module(f"pipeline.commands.{command[0]}").arguments(checker)
    checker.parse_args(command[1:])


class _Checker(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self.prog}: {message.removeprefix('argument ').replace(': ', ' ', 1)}")


def unit(options: argparse.Namespace, command: list[str]) -> str:
    """Return the text of a unit."""
    lines = []
    if options.user:
        lines.append(f"User={options.user}\n")
    if options.cores:
        cores = (core for part in options.cores for core in part)
        lines.append(f"CPUAffinity={' '.join(map(str, cores))}\n")
    return UNIT.format(
        name=options.name,
        command=" ".join(map(_quote, [_program(), *command])),
        folder=_escape(str(Path.cwd())),
        watchdog=options.watchdog,
        options="".join(lines),
        target="multi-user.target" if options.system else "default.target",
    )


def _program() -> str:
    program = Path(sys.argv[0])
    path = str(program.absolute()) if program.name == "soc-pipeline" else shutil.which("soc-pipeline")
    if not path:
        raise InputError(
            "there is no program 'soc-pipeline' on the path; install this package, and call it by its name"
        )
    return path


def _folder(options: argparse.Namespace) -> Path:
    return Path("/etc/systemd/system") if options.system else Path.home() / ".config" / "systemd" / "user"


def _quote(argument: str) -> str:
    """Return an argument as a unit's command line has it."""
    escaped = _escape(argument).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{escaped}"' if re.search(r"[\s\"';\\]", argument) or not argument else escaped


def _escape(text: str) -> str:
    # It begins a specifier of systemd's.
    return text.replace("%", "%%")
