"""Fenced code blocks of a page, run in the page's order, and the comparison of what they print with what it shows.

``python`` with a title is a file; without one it is a program to run.  ``sh`` is run line by line; the lines that
install are left out.  ``text`` is what the block in front of it printed.

    python -m tests.support.snippets docs/guide.md    # on a quiet machine of two cores: show what is printed now
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

INSTALLATION = ("python3 -m venv ", "pip install ", "make ")
NUMBER = r"\d+(?:\.\d+)?(?:,\d+)*"
VARYING_COLUMNS = frozenset(("ms", "frames/s", "cores", "stages", "replicas", "queue", "memory", "busy"))
"""Words in the headings of columns whose numbers hang on the machine."""
VARYING_NUMBERS = re.compile(r"\d+\.\d+(?:e[+-]?\d+)?|\d+(?=%| frames/s| ms)|(?<=error )\S+(?=,)")
"""Numbers of running text that hang on the machine: those with a decimal point, shares, rates, times, errors."""
RULES = frozenset("┏━┳┓┡╇┩├─┼┤└┴┘ ")
PATIENCE_S = 300


@dataclass(frozen=True)
class Snippet:
    """A fenced code block: its language, the title of its file, its text, and the line of the page where it begins."""

    language: str
    title: str
    text: str
    line: int


def snippets(page: str) -> list[Snippet]:
    """Return the fenced code blocks of a page, in order."""
    fences = re.finditer(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', page, re.MULTILINE | re.DOTALL)
    return [Snippet(fence[1], fence[2] or "", fence[3], page.count("\n", 0, fence.start()) + 1) for fence in fences]


@dataclass(frozen=True)
class Workshop:
    """Folder where commands find `python` and `soc-pipeline`: of a checkout, or of an installation's `programs`."""

    folder: Path
    root: Path
    programs: Path | None = None

    def run_page(self, page: str, but: str = "") -> str:
        """Run the snippets of a page, and return it with what they printed in place of what it showed.

        Lines of shell that are in the snippets of the page `but` as well are left out.

        Raises
        ------
        AssertionError
            If they print something else than the page shows, but for what may differ.
        """
        printed = ""
        familiar = {line for snippet in snippets(but) if snippet.language == "sh" for line in snippet.text.splitlines()}
        for snippet in snippets(page):
            if snippet.title:
                (self.folder / snippet.title).write_text(snippet.text, encoding="utf-8")
            elif snippet.language == "python":
                printed = self.run(f"python - <<'PROGRAM'\n{snippet.text}PROGRAM\n")
            elif snippet.language == "sh":
                printed = self.run("\n".join(line for line in snippet.text.splitlines() if line not in familiar))
            elif snippet.language == "text":
                expected_text = f"```text\n{snippet.text}```"
                page = page.replace(expected_text, f"```text\n{refresh(snippet.text, printed)}```", 1)
        return page

    def run(self, commands: str) -> str:
        """Run commands that have to succeed, and return what they print."""
        lines = [line for line in commands.splitlines() if not line.startswith(INSTALLATION)]
        path = {} if self.programs else {"PYTHONPATH": str(self.root)}
        result = subprocess.run(
            ["bash", "-e", "-c", "\n".join(lines)],
            cwd=self.folder,
            # Unbuffered, so that lines beside the results keep their place among them, as on a terminal.
            env={
                **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
                "PATH": f"{self.programs or self._programs()}:{os.environ['PATH']}",
                "PYTHONUNBUFFERED": "1",
                **path,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert result.returncode == 0, f"{commands}\n{result.stdout}"
        return result.stdout

    def _programs(self) -> Path:
        folder = self.folder / "programs"
        if not folder.is_dir():
            folder.mkdir()
            # The entry point by its name, so that it need not be installed.
            declared = (self.root / "distributions/runtime/pyproject.toml").read_text(encoding="utf-8")
            entry = re.search(r'^soc-pipeline = "([\w.]+):(\w+)"$', declared, re.MULTILINE)
            assert entry is not None
            start = f"import sys; from {entry[1]} import {entry[2]}; sys.exit({entry[2]}())"
            for name, words in (("soc-pipeline", f" -c '{start}'"), ("python", "")):
                program = folder / name
                program.write_text(f'#!{shutil.which("sh")}\nexec "{sys.executable}"{words} "$@"\n', encoding="utf-8")
                program.chmod(0o755)
        return folder


def refresh(expected_text: str, printed: str) -> str:
    """Return what is shown with the lines that were printed; ``...`` stands for any number of lines.

    Raises
    ------
    AssertionError
        If a line of either is not in the other, but for what may differ.
    """
    # A machine that is busy otherwise has waits to tell of, as readers' machines may have.
    printed = "\n".join(
        line for line in printed.splitlines() if " of its busy time for Python's interpreter" not in line
    )
    expected_lines, printed_lines = mask(expected_text), mask(printed)
    lines = [line.rstrip() for line in printed.splitlines()]
    parts: list[list[int]] = [[]]
    for line in expected_lines.values():
        if line == "...":
            parts.append([])
            continue
        rows_left = [
            index for index in printed_lines if index > max((index for part in parts for index in part), default=-1)
        ]
        # Behind a gap any line will do, otherwise only the next one.
        candidates = rows_left if len(parts) > 1 and not parts[-1] else rows_left[:1]
        match = next((index for index in candidates if printed_lines[index] == line), None)
        assert match is not None, f"the page shows\n{line}\nbut what follows is\n" + "\n".join(
            printed_lines[index] for index in rows_left
        )
        parts[-1].append(match)
    assert not parts[-1] or parts[-1][-1] == max(printed_lines), f"more is printed than shown:\n{printed}"
    return "...\n".join("".join(f"{lines[index]}\n" for index in _with_rules(part, lines)) for part in parts)


def mask(text: str) -> dict[int, str]:
    """Return the lines of a text by number, without what may differ: widths, rules of tables, numbers that vary."""
    masked, varying = dict[int, str](), set[int]()
    for number, line in enumerate(text.splitlines()):
        cells = [" ".join(cell.split()) for cell in re.split("[┃│]", line)]
        if line.startswith("┃"):
            varying = {index for index, cell in enumerate(cells) if VARYING_COLUMNS & set(cell.split())}
        elif line.startswith("│"):
            cells = [re.sub(NUMBER, "#", cell) if index in varying else cell for index, cell in enumerate(cells)]
        else:
            cells = [VARYING_NUMBERS.sub("#", cell) for cell in cells]
        if not set(line) <= RULES:
            masked[number] = "|".join(cells)
    return masked


def _with_rules(part: list[int], lines: list[str]) -> list[int]:
    """Return the numbers of lines from the first to the last of a part, with the rules of its tables around them."""
    if not part:
        return []
    first, last = part[0], part[-1]
    while first > 0 and lines[first - 1] and set(lines[first - 1]) <= RULES:
        first -= 1
    while last + 1 < len(lines) and lines[last + 1] and set(lines[last + 1]) <= RULES:
        last += 1
    return [index for index in range(first, last + 1) if lines[index]]


def main(page: Path) -> None:
    """Run the snippets of a page, and write what they print into it."""
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder), Path(__file__).resolve().parents[2])
        page.write_text(workshop.run_page(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
