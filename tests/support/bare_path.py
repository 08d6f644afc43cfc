"""A PATH without compilers, LLVM, emulators and browsers: python -m tests.support.bare_path FOLDER.

The folder gets links to all programs of PATH but these, as in a container that has just Python and make.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

TOOLS = re.compile(
    # Compilers and what belongs to them, also those for other processors.
    r"(.+-)?(gcc|g\+\+|cpp|c\+\+|cc|c89|c99|clang(\+\+)?|ld|gold|lld|as|ar|nm|ranlib|strip|objcopy|objdump|readelf)"
    r"([-.].+)?|(cmake|ctest|cpack|ccmake|ninja|meson|ccache|zig|tcc|icx|rustc|cargo|go)([-.].+)?"
    # LLVM, emulators, debuggers.
    r"|(llvm|lli|llc|opt|lldb|mlir|qemu|gdb|strace|perf|valgrind)([-_.].+)?"
    # What moves pictures, services, browsers, middleware, keys, and versions.
    r"|ff(mpeg|play|probe)|gst-.+|v4l2-.+|systemd(-.+)?|(system|journal|login|hostname|timedate|network|bus)ctl"
    r"|chrom.+|google-chrome.*|firefox.*|fastdds.*|idlc|cyclonedds|ddsperf|ros2?|openssl|ssh(-.+)?|git(-.+)?"
)
"""Programs that tests may use where they are installed."""


def link_programs(folder: Path, path: str) -> None:
    """Fill a folder with links to the programs of `path` that are no tools; earlier folders win."""
    folder.mkdir(parents=True)
    for place in map(Path, filter(None, path.split(os.pathsep))):
        for program in place.iterdir() if place.is_dir() else ():
            link = folder / program.name
            if not TOOLS.fullmatch(program.name) and not link.is_symlink() and os.access(program, os.X_OK):
                link.symlink_to(program.absolute())


if __name__ == "__main__":
    link_programs(Path(sys.argv[1]), os.environ["PATH"])
