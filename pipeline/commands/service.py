"""``soc-pipeline service``: let systemd run a command of this project."""

from __future__ import annotations

import argparse
import re
import shutil
import stat
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from pipeline.commands.shared import values
from pipeline.errors import InputError
from pipeline.system.files import write_atomically

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
{options}{sandbox}
[Install]
WantedBy={target}
"""


# What needs no privilege, and so holds in a user's own manager too. Devices stay open, as does memory that is both
# written and run: cameras, accelerators, and runtimes that compile need them. ProtectClock would close all devices.
SANDBOX = """\
NoNewPrivileges=true
ProtectSystem={system}
RestrictNamespaces=true
RestrictRealtime=true
RestrictSUIDSGID=true
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
LockPersonality=true
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
"""

# For the machine's manager alone.
SYSTEM_SANDBOX = """\
PrivateTmp=true
ProtectControlGroups=true
ProtectHostname=true
ProtectKernelLogs=true
ProtectKernelModules=true
ProtectKernelTunables=true
ProtectProc=invisible
UMask=0027
"""

# A user that exists while the service runs, and may write to these two folders only.
DYNAMIC_USER = """\
DynamicUser=true
StateDirectory=soc-pipeline-{name}
CacheDirectory=soc-pipeline-{name}
Environment=SOC_PIPELINE_CACHE=%C/soc-pipeline-{name}
"""

# Whose members may use cameras and accelerators.
DEVICE_GROUPS = ("video", "render")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("action", choices=("install",), help="write the unit, and say how to start it")
    parser.add_argument("name", metavar="NAME", help="of the service, behind 'soc-pipeline-'")
    parser.add_argument("--system", action="store_true", help="of the machine, not of this user (needs root)")
    parser.add_argument(
        "--user",
        metavar="NAME",
        help="with --system: as whom it runs; what writes files needs one who may (default: a user of its own, who "
        "exists while it runs, and writes to /var/lib/soc-pipeline-NAME only)",
    )
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
    if options.user and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*\$?|\d+", options.user):
        raise InputError(f"--user {options.user!r} is no name of a user")
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
    program, folder = _program(), str(Path.cwd())
    _check_lines(folder, program, *command)
    cores = " ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in options.cores or ())
    return UNIT.format(
        name=options.name,
        command=" ".join(map(_quote, [program, *command])),
        folder=_escape(folder),
        watchdog=options.watchdog,
        options=f"CPUAffinity={cores}\n" if cores else "",
        sandbox=_sandbox(options, (program, folder)),
        target="multi-user.target" if options.system else "default.target",
    )


def _sandbox(options: argparse.Namespace, paths: Sequence[str]) -> str:
    """Return the service's user and permissions."""
    if not options.system:
        return SANDBOX.format(system="full")
    if options.user:
        # Some devices are for root alone, whose capabilities they need.
        capabilities = "" if options.user in ("root", "0") else "CapabilityBoundingSet=\n"
        return f"User={options.user}\n" + SANDBOX.format(system="full") + SYSTEM_SANDBOX + capabilities
    for path in paths:
        _check_open(Path(path))
    groups = " ".join(_groups())
    user = DYNAMIC_USER.format(name=options.name) + (f"SupplementaryGroups={groups}\n" if groups else "")
    return user + SANDBOX.format(system="strict") + SYSTEM_SANDBOX + "CapabilityBoundingSet=\n"


def _groups() -> list[str]:
    import grp

    # A unit that names a group that is not there does not start.
    names = {group.gr_name for group in grp.getgrall()}
    return [name for name in DEVICE_GROUPS if name in names]


def _check_open(path: Path) -> None:
    """Raise `InputError` for paths unreachable by the service's user."""
    for folder in (path, *path.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            raise InputError(
                f"{str(folder)!r} is not open to all users, and so not to one of the service's own; give --user NAME, "
                "or install the program and call this in a place that is"
            )


def _check_lines(folder: str, *words: str) -> None:
    """Raise `InputError` for text breaking a unit's line."""
    for word in (folder, *words):
        if re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", word):
            raise InputError(f"{word!r} has a control character, or is no UTF-8; a unit of systemd's cannot hold it")
    # What stands behind '=' is stripped, and a backslash at the end continues the line.
    if folder != folder.strip() or folder.endswith("\\"):
        raise InputError(
            f"the folder {folder!r} ends in what a unit of systemd's cannot hold; call this in another one"
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
    """Quote an argument for a unit's command line."""
    escaped = _escape(argument).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{escaped}"' if re.search(r"[\s\"';\\]", argument) or not argument else escaped


def _escape(text: str) -> str:
    # It begins a specifier of systemd's.
    return text.replace("%", "%%")
