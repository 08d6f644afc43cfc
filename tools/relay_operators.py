"""Page of Relay's operators: those that are read, and the reasons why others are refused.

python tools/relay_operators.py     # writes docs/relay.md; a test compares it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pipeline.frontends.relay.operators.table import TABLE

PAGE = Path(__file__).resolve().parents[1] / "docs" / "relay.md"

REFUSED: Mapping[str, str] = {
    "for one kind of hardware, or a layout that a pass has chosen": """
        contrib.ethosu.binary_elementwise contrib.ethosu.conv2d contrib.ethosu.depthwise_conv2d contrib.ethosu.identity
        contrib.ethosu.pooling contrib.ethosu.unary_elementwise nn.bitpack nn.bitserial_conv2d nn.bitserial_dense
        nn.contrib_conv2d_NCHWc nn.contrib_conv2d_gemm_weight_transform nn.contrib_conv2d_gemm_without_weight_transform
        nn.contrib_conv2d_winograd_nnpack_weight_transform nn.contrib_conv2d_winograd_weight_transform
        nn.contrib_conv2d_winograd_without_weight_transform nn.contrib_conv3d_winograd_weight_transform
        nn.contrib_conv3d_winograd_without_weight_transform nn.contrib_dense_pack nn.contrib_depthwise_conv2d_NCHWc
        qnn.contrib_dense_pack
    """,
    "of the compiler, in no program that a frontend writes": """
        annotation.bitpack_end annotation.bitpack_start annotation.with_funcid auto_scheduler_layout_transform
        call_lowered contrib_reverse_reshape debug memory.alloc_storage memory.alloc_tensor memory.kill
        meta_schedule_layout_transform torch_op vm.invoke_tvm_op vm.reshape_tensor
    """,
    "for training": """
        collapse_sum_like collapse_sum_to nn.avg_pool2d_grad nn.conv2d_backward_weight nn.cross_entropy
        nn.cross_entropy_with_logits nn.max_pool2d_grad nn.nll_loss qnn.simulated_dequantize qnn.simulated_quantize
        relay.op.annotation.simulated_quantize
    """,
    "rare, and not done yet": """
        dft fixed_point_multiply_per_axis nn.correlation reinterpret stft strided_set vision.proposal vision.yolo_reorg
    """,
    "sparse tensors": """
        nn.internal.sparse_dense_padded nn.sparse_add nn.sparse_conv2d nn.sparse_dense nn.sparse_transpose
        sparse_to_dense
    """,
    "the shape of its result depends on values": """
        argwhere dyn.sparse_to_dense sparse_fill_empty_rows sparse_reshape unique
    """,
    "random numbers": """
        random.multinomial random.normal random.threefry_generate random.threefry_split random.uniform
    """,
}
"""Operators of the last versions of Relay that are not read, by the reason."""


def render() -> str:
    """Return the page's text."""
    families: dict[str, list[str]] = {}
    for name in TABLE:
        families.setdefault(name.rpartition(".")[0], []).append(name)
    total = len(TABLE) + sum(len(names.split()) for names in REFUSED.values())
    lines = [
        "# Relay operators",
        "",
        f"The last versions of TVM with Relay had {total} names of operators. {len(TABLE)} of them are read.",
        "A program with another one is refused. The error names all of these, and where they are. Operands that fix a",
        "shape (sizes, indices, limits) have to be constants.",
        "",
        "`python tools/relay_operators.py` writes this page.",
        "",
        "## Read",
        "",
        "| prefix | operators |",
        "|---|---|",
        *(f"| {prefix and f'`{prefix}`'} | {_list(names)} |" for prefix, names in sorted(families.items())),
        "",
        "## Refused",
        "",
        "| reason | operators |",
        "|---|---|",
        *(f"| {reason} | {_list(names.split())} |" for reason, names in REFUSED.items()),
    ]
    return "\n".join(lines) + "\n"


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
