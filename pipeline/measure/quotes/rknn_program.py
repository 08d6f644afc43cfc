"""Compile an ONNX model by RKNN and write its layers, cycles and bytes as JSON.

Run by the Python that has rknn-toolkit2, without this project: python rknn_program.py MODEL.onnx QUOTE.json CHIP.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

_NEWEST_OPSET = 19

_ROW = re.compile(
    r" \d+ +(?P<kind>\S+) +(?P<precision>\S+) +(?P<target>CPU|NPU|GPU) +\S+ +(?P<shape>\S+) +"
    r"\d+/(?P<compute>\d+)/\d+ +(?P<read>[\d.]+) +(?P<name>\S+)"
)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
# The compiler keeps these within the names of layers that it makes of a node.
_MARK = re.compile(r"__(\d+)__")
_BYTES = {"FLOAT32": 4, "INT32": 4, "INT64": 8, "FLOAT16": 2, "BFLOAT16": 2, "INT16": 2}


def main() -> None:
    """Compile in a process of its own, which may crash, and read its log."""
    model, quote, chip = sys.argv[1:4]
    if sys.argv[4:] == ["compile"]:
        return compile_model(model, quote, chip)
    tool = f"rknn-toolkit2 {version('rknn-toolkit2')}"
    marked = f"{model}.marked.onnx"
    names = mark(model, marked)
    command = [sys.executable, __file__, marked, quote, chip, "compile"]
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)  # noqa: S603
    log = _COLOUR.sub("", process.stdout.decode(errors="replace"))
    refusal = "" if process.returncode == 0 else _reason(log, process.returncode)
    layers = [_layer(row, names) for row in _ROW.finditer(log) if not row["kind"].endswith("putOperator")]
    answer = {"tool": tool, "refusal": refusal, "layers": layers}
    Path(quote).write_text(json.dumps(answer), encoding="utf-8")
    return None


def mark(source: str, path: str) -> list[str]:
    """Name nodes and inner tensors by number; return the nodes' own names."""
    import onnx
    from onnx import version_converter

    model = onnx.load(source)
    if any(not opset.domain and opset.version > _NEWEST_OPSET for opset in model.opset_import):
        model = version_converter.convert_version(model, _NEWEST_OPSET)
    graph = model.graph
    del graph.value_info[:]
    ends = {value.name for value in (*graph.input, *graph.output)}
    renamed: dict[str, str] = {}
    names = []
    for number, node in enumerate(graph.node):
        names.append(node.name or next(iter(node.output)))
        node.name = f"__{number}__"
        node.input[:] = [renamed.get(name, name) for name in node.input]
        for place, name in enumerate(node.output):
            if name and name not in ends:
                renamed[name] = f"__{number}__t{place}"
        node.output[:] = [renamed.get(name, name) for name in node.output]
    onnx.save(model, path)
    return names


def compile_model(model: str, quote: str, chip: str) -> None:
    """Compile a model, with RKNN's table of layers in its log."""
    from rknn.api import RKNN

    rknn = RKNN(verbose=True)
    rknn.config(target_platform=chip)
    failed = rknn.load_onnx(model=model) or rknn.build(do_quantization=False)
    # Some that it cannot run are found as late as this.
    failed = failed or rknn.export_rknn(f"{quote}.rknn")
    rknn.release()
    sys.exit(int(bool(failed)))


def _layer(row: re.Match[str], names: list[str]) -> dict[str, Any]:
    numbers = sorted({int(number) for number in _MARK.findall(row["name"])})
    extents = [int(extent) for extent in re.findall(r"\d+", row["shape"])]
    written = math.prod(extents) * _BYTES.get(row["precision"], 1)
    return {
        "operators": [names[number] for number in numbers if number < len(names)],
        "target": row["target"],
        "precision": row["precision"].lower(),
        # Its cycles of the memory are for 0.7 of the widest one's peak, whatever the board has.
        "cycles": int(row["compute"]),
        "is_move": row["kind"] in ("Reshape", "Transpose"),
        "bytes": int(float(row["read"]) * 1024) + written,
    }


def _reason(log: str, status: int) -> str:
    if status < 0:
        return f"RKNN's compiler was ended by signal {-status}"
    errors = [line for line in log.splitlines() if re.search(r"\bE (RKNN|\w+:)|^\w*Error: ", line)]
    lines = [line.strip() for line in errors or log.splitlines() if line.strip() and "Traceback" not in line]
    return lines[-1][:200] if lines else f"RKNN's compiler ended with status {status}"


if __name__ == "__main__":
    main()
