"""ModelTool: a vendor's command from a stage's model to its device's file."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pipeline.core.board.board import Device
from pipeline.errors import BoardError, BuildError, near

TOOL_KEYS = ("compile", "artifact", "supported", "time_limit_s")
"""Target keys of a tool."""

LIMIT_S = 3600.0
"""Default time limit of a command in seconds. Some compilers search for the fastest kernels."""

SHOWN_LINES = 20
"""Last lines shown of a failing command."""

_PLACEHOLDERS = ("stage", "artifact")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
# Of a file in the folder of the command: a plan of other people must not name one elsewhere.
_ARTIFACT = re.compile(r"\{stage\}[\w.-]+", re.ASCII)


@dataclass(frozen=True)
class ModelTool:
    """The commands in a device's target."""

    compile: tuple[str, ...]
    supported: tuple[str, ...]
    """Words of the command that writes the artifact, and of the one that prints names of nodes that it cannot take;
    empty if there is none."""
    model_file: str
    artifact_file: str
    """Names of what it reads and writes."""
    limit_s: float
    """Seconds that a command may take."""

    @staticmethod
    def of(device: Device, model_format: str) -> ModelTool:
        """Return a device's tool for a model format.

        Raises `BoardError` if its target has commands, a file name or a time that cannot be.
        """
        target = device.target or {}
        command, supported = (_words(target, key) for key in ("compile", "supported"))
        model_file = f"stage.{model_format}"
        artifact = target.get("artifact", "{stage}.artifact")
        if not isinstance(artifact, str) or not _ARTIFACT.fullmatch(artifact):
            raise BoardError(
                f"artifact is {artifact!r}; it must be '{{stage}}' and an ending, such as '{{stage}}.rknn'"
            )
        if command and "artifact" not in target and not any("{artifact}" in word for word in command):
            raise BoardError("compile does not name {artifact}, the file that it has to write")
        artifact_file = artifact.replace("{stage}", "stage") if command else model_file
        return ModelTool(command, supported, model_file, artifact_file, _limit(target))

    def compile_model(self, model: bytes) -> bytes:
        """Compile a model with the command, if there is one.

        Raises `BuildError` if the command fails, takes too long, or writes nothing.
        """
        if not self.compile:
            return model
        (content,) = self.compile_files(model, [self.artifact_file])
        if not content:
            raise BuildError(f"{' '.join(self.compile)!r} ended well, but wrote no {self.artifact_file!r}")
        return content

    def compile_files(self, model: bytes, names: Sequence[str]) -> list[bytes]:
        """Compile a model and return files by name, empty if missing."""
        with self._folder(model) as folder:
            self._run(self.compile, folder)
            return [(folder / name).read_bytes() if (folder / name).is_file() else b"" for name in names]

    def find_unsupported(self, model: bytes) -> list[str]:
        """Return the nodes refused by the tool; raises as `compile_model`."""
        if not self.supported:
            return []
        with self._folder(model) as folder:
            output = self._run(self.supported, folder)
        return list(dict.fromkeys(line.strip() for line in output.splitlines() if line.strip()))

    @contextlib.contextmanager
    def _folder(self, model: bytes) -> Iterator[Path]:
        # What runs in a container may leave files of another user.
        with tempfile.TemporaryDirectory(prefix="soc-pipeline-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            (folder / self.model_file).write_bytes(model)
            yield folder

    def _run(self, command: Sequence[str], folder: Path) -> str:
        """Run a command in a folder and return its output."""
        files = {"stage": str(folder / "stage"), "artifact": str(folder / self.artifact_file)}
        words = [_PLACEHOLDER.sub(lambda match: files[match[1]], word) for word in command]
        title = repr(" ".join(command))
        # Files, and no pipes: what the command leaves behind would keep those open.
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            status = _wait(title, words, folder, self.limit_s, (output, errors))
            printed, complaints = _text(output), _text(errors)
        if status:
            lines = (printed + complaints).strip().splitlines()[-SHOWN_LINES:]
            raise BuildError(
                "\n".join([f"{title} {_ending(status)}{':' if lines else ', and printed nothing'}", *lines])
            )
        return printed


def _wait(title: str, words: Sequence[str], folder: Path, limit_s: float, outputs: tuple[IO[bytes], IO[bytes]]) -> int:
    """Wait for a process, ended in any case; return its status."""
    # The folder is its own: a program that is named by a path from here is none from there.
    program = str(Path(words[0]).expanduser().absolute()) if "/" in words[0] else words[0]
    try:
        process = subprocess.Popen(  # noqa: S603 - of the user's own board, and no shell
            [program, *words[1:]],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=outputs[0],
            stderr=outputs[1],
            start_new_session=True,
        )
    except OSError as error:
        raise BuildError(f"cannot run {title}: {error.strerror}: {words[0]!r}; install it, or name its path") from error
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{title} takes more than {limit_s:g} s; set time_limit_s in the device's target") from None
    finally:
        if process.poll() is None:
            # With all that it has started, in a group of its own.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    text = file.read().decode(errors="replace").replace("\r", "\n")
    # Escape sequences would reach the user's terminal.
    return "".join(sign for sign in text if sign.isprintable() or sign in "\n\t")


def _ending(status: int) -> str:
    return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"


def _words(target: Mapping[str, Any], key: str) -> tuple[str, ...]:
    if key not in target:
        return ()
    text = target[key]
    try:
        words = shlex.split(text) if isinstance(text, str) and "\0" not in text else []
    except ValueError as error:
        raise BoardError(f"{key} is {text!r}, which is no command: {error}") from None
    if not words:
        raise BoardError(f"{key} is {text!r}; it must be a command, such as 'compiler {{stage}}.onnx {{artifact}}'")
    for name in _PLACEHOLDER.findall(text):
        if name not in _PLACEHOLDERS:
            there_are = " and ".join(f"{{{placeholder}}}" for placeholder in _PLACEHOLDERS)
            raise BoardError(f"{key} has the placeholder {{{name}}}; there are {there_are}{near(name, _PLACEHOLDERS)}")
    return tuple(words)


def _limit(target: Mapping[str, Any]) -> float:
    limit = target.get("time_limit_s", LIMIT_S)
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit < 1e7:
        raise BoardError(f"time_limit_s is {limit!r}; it must be seconds above 0")
    return float(limit)
