"""A stand-in for a vendor's compiler, which speaks the protocol of quotes: what it says is written in a table."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.measure.quotes.compilers import variable

PROGRAM = """#!{python}
import json, pathlib, sys
import tflite
if sys.argv[1] == "-c":
    # Asked if it has the compiler.
    sys.exit()
# As by a compiler's Python: the program that would ask it, the model, the answer and the chip.
_, model, answer, chip = sys.argv[1:]
table = json.loads({table!r})
graph = tflite.Model.GetRootAsModel(pathlib.Path(model).read_bytes(), 0).Subgraphs(0)
operators = map(graph.Operators, range(graph.OperatorsLength()))
made = [graph.Tensors(operator.Outputs(0)).Name().decode() for operator in operators]
names = [name for name in table if name in made]
refusals = [table[name] for name in names if isinstance(table[name], str)]
layers = [dict(precision="int8", operators=[name], bytes=0, **table[name]) for name in names if not refusals]
quote = dict(tool="stand-in 1.0 for " + chip, refusal="".join(refusals[:1]), layers=layers, memory_bytes=2048)
pathlib.Path(answer).write_text(json.dumps(quote))
"""


def install_compiler(
    name: str, table: Mapping[str, str | Mapping[str, Any]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let plans ask a stand-in for a compiler; its table has a refusal, or target and cycles, by operator."""
    program = folder / f"{name}-stand-in"
    program.write_text(PROGRAM.format(python=sys.executable, table=json.dumps(table)), encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv(variable(name), str(program))
