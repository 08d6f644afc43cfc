"""Compile a TFLite model by Vela and write its layers, cycles, bytes and on-chip memory as JSON.

Run by the Python that has ethos-u-vela, without this project: python vela_program.py MODEL.tflite QUOTE.json CHIP,
where the chip is an accelerator configuration of Vela, such as ethos-u65-256.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Columns of the table with cycles of each memory, and of the summary with its bandwidth in GiB per second.
_MEMORIES = {
    "SRAM AC": "sram_bandwidth",
    "DRAM AC": "dram_bandwidth",
    "OnFlash AC": "on_chip_flash_bandwidth",
    "OffFlash AC": "off_chip_flash_bandwidth",
}
_NPU_OPERATOR = b"ethos-u"


def main() -> None:
    """Compile in a process of its own and read what it has written."""
    model, quote, chip = sys.argv[1:4]
    answer: dict[str, Any] = {"tool": f"ethos-u-vela {version('ethos-u-vela')}"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "ethosu.vela", model, "--accelerator-config", chip, "--verbose-performance"]
        command += ["--output-dir", folder]
        process = subprocess.run(  # noqa: S603
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        if process.returncode:
            lines = process.stdout.decode(errors="replace").split("\n")
            answer["refusal"] = next((line.strip()[:200] for line in reversed(lines) if line.strip()), "Vela failed")
        # Its table has the layers of one; those of the others would seem to take no time.
        elif (count := _open(model).SubgraphsLength()) > 1:
            answer["refusal"] = f"Vela counts the cycles of one subgraph, and the model has {count}"
        else:
            answer |= read_output(model, Path(folder))
    Path(quote).write_text(json.dumps(answer), encoding="utf-8")


def read_output(model: str, folder: Path) -> dict[str, Any]:
    """Return the layers and the on-chip memory in Vela's files."""
    name = Path(model).stem
    (summary,) = _rows(next(folder.glob(f"{name}_summary_*.csv")))
    operators = {outputs: precision for _, outputs, precision in _operators(model)}
    # Whatever is still an operator of its own is computed by the CPU; the table does not have all of these.
    compiled = _operators(str(folder / f"{name}_vela.tflite"))
    left = {outputs for custom_code, outputs, _ in compiled if custom_code != _NPU_OPERATOR}
    ends = {output: outputs for outputs in operators for output in outputs}
    costs: dict[tuple[str, ...], Counter[str]] = {}
    # Steps of an operator that is taken apart have names of Vela's; its last step has the operator's.
    steps = Counter[str]()
    for row in _rows(folder / f"{name}_per-layer.csv"):
        if row["Target"] == "NPU":
            steps += _cost(row, summary)
            if row["Name"] in ends:
                costs[ends[row["Name"]]] = costs.get(ends[row["Name"]], Counter()) + steps
                steps = Counter()
    if steps and costs:
        costs[next(reversed(costs))] += steps
    layers = [
        {
            "operators": outputs,
            "target": "CPU" if outputs in left else "NPU",
            "precision": precision,
            "cycles": costs.get(outputs, Counter())["cycles"],
            "bytes": costs.get(outputs, Counter())["bytes"],
        }
        for outputs, precision in operators.items()
        if outputs in left or outputs in costs
    ]
    return {"layers": layers, "memory_bytes": int(float(summary["sram_memory_used"]) * 1024)}


def _cost(row: dict[str, str], summary: dict[str, str]) -> Counter[str]:
    clock_hz = float(summary["core_clock"])
    moved = sum(float(row[cycles]) * float(summary[rate]) for cycles, rate in _MEMORIES.items())
    return Counter(cycles=int(row["Op Cycles"]), bytes=int(moved * 2**30 / clock_hz))


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _operators(path: str) -> list[tuple[bytes | None, tuple[str, ...], str]]:
    """Return the custom code, the outputs' names and the precision of each operator."""
    from ethosu.vela.tflite.TensorType import TensorType

    precisions = {value: name.lower() for name, value in vars(TensorType).items() if isinstance(value, int)}
    model = _open(path)
    graph = model.Subgraphs(0)
    operators = []
    for operator in map(graph.Operators, range(graph.OperatorsLength())):
        tensors = [graph.Tensors(operator.Outputs(place)) for place in range(operator.OutputsLength())]
        precision = precisions[tensors[0].Type()] if tensors else ""
        code = model.OperatorCodes(operator.OpcodeIndex()).CustomCode()
        operators.append((code, tuple(tensor.Name().decode() for tensor in tensors), precision))
    return operators


def _open(path: str) -> Any:
    from ethosu.vela.tflite.Model import Model

    return Model.GetRootAs(Path(path).read_bytes(), 0)


if __name__ == "__main__":
    main()
