"""``soc-pipeline vta``: what has to do with the accelerator VTA alone."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.commands import common
from pipeline.errors import InstructionError

if TYPE_CHECKING:
    from boards.vta.config import Config
    from boards.vta.instructions import Instruction, Uop

HELP = "Look at programs of the int8 accelerator VTA."
EXAMPLE = "soc-pipeline vta disassemble stream.bin --version 0.0.1"

_DISASSEMBLE = "Print the instructions of a binary stream (16 bytes each, little-endian), one per line."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions, and their options."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    action = actions.add_parser(
        "disassemble",
        help=_DISASSEMBLE,
        description=_DISASSEMBLE,
        epilog=f"example:\n  {EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    action.add_argument("files", metavar="FILE", nargs="+", help="a stream, as the accelerator fetches it")
    action.add_argument("--uops", metavar="FILE", help="micro-ops (4 bytes each) to print behind the instructions")
    action.add_argument("--config", metavar="FILE", help="a vta_config.json of VTA (default: VTA's standard sizes)")
    action.add_argument(
        "--version", metavar="ISA", help="0.0.1 or 0.0.2 (default: the configuration's HW_VER; 0.0.2 without one)"
    )
    action.add_argument("--json", action="store_true", help="print JSON, with every field, instead of text")
    action.set_defaults(action=_disassemble)


def run(options: argparse.Namespace) -> int:
    """Run the action."""
    options.action(options)
    return 0


def _disassemble(options: argparse.Namespace) -> None:
    from boards.vta.config import Config

    config = Config.load(options.config) if options.config else Config()
    config = replace(config, hw_ver=options.version) if options.version else config
    # All are read before anything is printed, so that a mistake prints nothing else.
    streams = {file: _stream(config, file) for file in options.files}
    uops = _uops(config, options.uops) if options.uops else ()
    if options.json:
        _print_facts(config, streams, uops)
    else:
        _print_text(config, streams, uops)


def _stream(config: Config, file: str) -> tuple[Instruction, ...]:
    from boards.vta import encoding

    with _named(file):
        return encoding.decode(config, encoding.read_stream(Path(file).read_bytes()))


def _uops(config: Config, file: str) -> tuple[Uop, ...]:
    from boards.vta import encoding

    with _named(file):
        return encoding.decode_uops(config, encoding.read_uops(Path(file).read_bytes()))


@contextlib.contextmanager
def _named(file: str) -> Iterator[None]:
    """Let errors name the file."""
    try:
        yield
    except InstructionError as error:
        raise InstructionError(f"{file}: {error}") from None


def _print_text(config: Config, streams: dict[str, tuple[Instruction, ...]], uops: tuple[Uop, ...]) -> None:
    from boards.vta import disassembly

    for file, stream in streams.items():
        print(f"{file}: {len(stream)} instructions, {config.name}, version {config.hw_ver}")
        for index, each in enumerate(stream):
            print(disassembly.line(config, index, each))
    for index, uop in enumerate(uops):
        print(disassembly.uop_line(index, uop))


def _print_facts(config: Config, streams: dict[str, tuple[Instruction, ...]], uops: tuple[Uop, ...]) -> None:
    from boards.vta import disassembly

    files = [
        {"file": file, "instructions": [disassembly.facts(config, index, each) for index, each in enumerate(stream)]}
        for file, stream in streams.items()
    ]
    found = {"config": config.name, "version": config.hw_ver, "files": files}
    common.print_json({**found, "uops": [asdict(uop) for uop in uops]} if uops else found)
