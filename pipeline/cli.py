"""The command line ``soc-pipeline``."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from pipeline.commands.shared import termination
from pipeline.errors import InputError, PipelineError
from pipeline.system.distribution import FULL, IS_FULL
from pipeline.system.version import VERSION

# In the order in which help lists them: from a first look to what few need.
COMMANDS = (
    "demo",
    "inspect",
    "convert",
    "boards",
    "which",
    "devices",
    "doctor",
    "profile",
    "plan",
    "simulate",
    "quantize",
    "tune",
    "build",
    "split",
    "run",
    "app",
    "node",
    "bench",
    "serve",
    "service",
    "vta",
)
"""Each is a module of `pipeline.commands` with `HELP`, `EXAMPLE`, `arguments(parser)` and `run(options)`."""

RUNTIME_COMMANDS = ("inspect", "devices", "doctor", "run", "app", "node", "bench", "serve", "service", "vta")
"""Commands of an installation that only runs bundles."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its status: 0, 1 (failed), 2 (misused), 130 (interrupted)."""
    try:
        # First: also the message about a wrong argument may have such a name in it.
        _print_any_name()
        arguments = sys.argv[1:] if argv is None else list(argv)
        _check(arguments)
        # The others are not even imported: a command that streams has its first result in a third of a second.
        names = arguments[:1] if arguments and arguments[0] in COMMANDS else ()
        options = parser(names).parse_args(arguments)
        with termination.interrupts():
            status: int = options.run(options)
        # Here and not at the exit, where a full disk or a closed pipe would end in a traceback.
        _flush()
    except PipelineError as error:
        _say(str(error))
        return error.exit_status
    except KeyboardInterrupt:
        _say("interrupted")
        return _leave(termination.INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has gone, as in "soc-pipeline inspect model.onnx | head".
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError as error:
        _say(f"there is not enough memory; {str(error) or 'end other programs, or use a smaller model or frame'}")
        return 1
    except OSError as error:
        _say(f"{error.filename or 'input or output'}: {error.strerror or error}")
        return 1
    return status


def _print_any_name() -> None:
    """Print file names without UTF-8, with their bytes as numbers."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _check(arguments: Sequence[str]) -> None:
    """Raise `InputError` for empty arguments, such as unset variables."""
    for previous, argument in zip(("", *arguments), arguments, strict=False):
        option, equals, value = argument.partition("=")
        if not argument:
            position = f"behind {previous}" if previous.startswith("-") else "on the command line"
            raise InputError(f"there is an empty argument {position}; give a value, or leave it out")
        if option.startswith("--") and equals and not value:
            raise InputError(f"{option} is empty; give it a value, or leave it out")


class CommandParser(argparse.ArgumentParser):
    """Parser that names impossible values in one line, without usage."""

    def error(self, message: str) -> NoReturn:
        """Raise `InputError` for a refused value; else show the usage."""
        option, _, reason = message.removeprefix("argument ").partition(": ")
        # By this word `values` begins each refusal, and argparse none of its own messages.
        if reason.startswith("is "):
            raise InputError(f"{option} {reason}")
        super().error(message)


def parser(names: Sequence[str] = ()) -> CommandParser:
    """Return the parser of some commands, by default all installed."""
    top = CommandParser(
        prog="soc-pipeline",
        description="Cut a neural network into stages, build each for its own device, and stream frames through them.",
        epilog="" if IS_FULL else f"What reads, plans and builds models is in {FULL}.",
    )
    top.add_argument("--version", action="version", version=f"soc-pipeline {VERSION}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for name in names or (COMMANDS if IS_FULL else RUNTIME_COMMANDS):
        # Light modules: what is heavy they import when they run.
        module = import_module(f"pipeline.commands.{name}")
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=module.HELP,
            epilog=f"example:\n  {module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.arguments(command)
        command.set_defaults(run=module.run)
    return top


def _say(text: str) -> None:
    # A terminal that is gone has nobody to tell.
    with contextlib.suppress(OSError):
        print(f"soc-pipeline: {text}", file=sys.stderr)


def _leave(status: int) -> int:
    """Return `status`, or exit at once with a device still busy.

    A kernel cannot be interrupted, and the interpreter must not take its memory away while it runs.
    """
    # Threads that only rest do not keep anybody.
    from pipeline.system.threads import RESTING

    workers = [thread for thread in threading.enumerate() if thread.daemon and thread is not threading.current_thread()]
    if any(thread.is_alive() and thread.name != RESTING for thread in workers):
        _exit_now(status)
    return status


def _exit_now(status: int) -> NoReturn:
    _flush()
    os._exit(status)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # it is when the caller has closed it
            stream.flush()


if __name__ == "__main__":
    sys.exit(main())
