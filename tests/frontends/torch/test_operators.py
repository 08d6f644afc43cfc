"""Operators of PyTorch that TVM's importer gets wrong or has not compute what PyTorch computes."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.support.torch_models import check_outputs, export, image  # noqa: E402

pytestmark = [
    # PyTorch's own, from its export.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


MASK = torch.tensor([[1, 0, 1, 1, 0]] * 4 + [[0] * 5]).bool()


@pytest.mark.parametrize(
    ("mask", "options"),
    [
        (None, {}),
        (None, {"is_causal": True}),
        (None, {"scale": 0.3}),
        (MASK, {}),
        (torch.where(MASK, 0.5, -torch.inf), {}),
        (torch.where(MASK, 0.5, torch.finfo(torch.float32).min)[:4].repeat(2, 1)[:5], {}),
        (image(2, 1, 5, 5), {}),
    ],
    ids=["plain", "causal", "scaled", "boolean", "infinite", "lowest", "four dimensions"],
)
def test_attention(mask: Any, options: dict[str, Any]) -> None:
    attend = torch.nn.functional.scaled_dot_product_attention
    inputs = (image(2, 2, 5, 4), *(() if mask is None else (mask,)))
    check_outputs(export(lambda _, x, m=None: attend(x, x * 2, x, attn_mask=m, **options), *inputs), *inputs)


def test_attention_with_fewer_keys_than_queries() -> None:
    attend = torch.nn.functional.scaled_dot_product_attention
    inputs = image(1, 4, 5, 4), image(1, 2, 5, 4)
    check_outputs(export(lambda _, q, k: attend(q, k, k, enable_gqa=True), *inputs), *inputs)


interpolate = torch.nn.functional.interpolate
WHOLE = torch.tensor([[-3, 2, 5], [1, -2, 4]])


@pytest.mark.parametrize(
    ("name", "function", "inputs"),
    [
        ("add with alpha", lambda _, x: torch.add(x, x.exp(), alpha=2), (image(2, 3),)),
        ("sub with alpha", lambda _, x: torch.sub(x, 1, alpha=3), (image(2, 3),)),
        ("division of whole numbers", lambda _, x: x / (x.abs() + 1), (WHOLE,)),
        ("division that rounds", lambda _, x: torch.div(x, 2, rounding_mode="trunc"), (WHOLE,)),
        ("division that floors", lambda _, x: torch.div(x, 2, rounding_mode="floor"), (WHOLE,)),
        ("clamp of whole numbers", lambda _, x: x.clamp(min=0), (WHOLE,)),
        ("clamp_max", lambda _, x: torch.clamp_max(x, 0.1), (image(2, 3),)),
        ("selu", lambda _, x: torch.nn.functional.selu(x), (image(2, 3),)),
        ("celu", lambda _, x: torch.nn.functional.celu(x, 0.7), (image(2, 3),)),
        ("index from the end", lambda _, x: x[:, torch.tensor([-1, 0])], (image(2, 3),)),
        ("index of two axes", lambda _, x: x[:, torch.tensor([0, 2]), torch.tensor([1, 1])], (image(2, 3, 4, 5),)),
        ("index of axes apart", lambda _, x: x[torch.tensor([0, 1]), :, torch.tensor([1, 1])], (image(2, 3, 4),)),
        ("index that broadcasts", lambda _, x: x[:, torch.tensor([[0], [2]]), torch.tensor([1, 3])], (image(2, 3, 4),)),
        ("nearest", lambda _, x: interpolate(x, size=(13, 5)), (image(1, 2, 8, 8),)),
        ("nearest, twice", lambda _, x: interpolate(x, scale_factor=2), (image(1, 2, 8, 8),)),
        ("bilinear", lambda _, x: interpolate(x, size=(13, 5), mode="bilinear"), (image(1, 2, 8, 8),)),
        ("bilinear by a factor", lambda _, x: interpolate(x, scale_factor=1.3, mode="bilinear"), (image(1, 2, 8, 8),)),
        ("bicubic by a factor", lambda _, x: interpolate(x, scale_factor=0.7, mode="bicubic"), (image(1, 2, 8, 9),)),
        (
            "corners of one row",
            lambda _, x: interpolate(x, size=(1, 5), mode="bilinear", align_corners=True),
            (image(1, 2, 8, 8),),
        ),
        (
            "corners of one pixel",
            lambda _, x: interpolate(x, size=(1, 1), mode="bicubic", align_corners=True),
            (image(1, 2, 8, 8),),
        ),
        ("an output twice", lambda _, x: (x.exp(), x, x.exp()), (image(2, 3),)),
        ("whole numbers times a fraction", lambda _, x: (x * 0.5, 2 / (x + 9), (x + 9) ** 0.5, x < 0.5), (WHOLE,)),
        ("a place from the end", lambda _, x: x[:, -1], (image(2, 3),)),
        ("smallest values", lambda _, x: (*x.min(1), x.amax((0, 1)), x.prod(1)), (image(2, 3),)),
        ("shifts", lambda _, x: ((x << 2) + (x >> 1), (x > 2).any()), (WHOLE,)),
        ("adaptive means", lambda _, x: torch.nn.functional.adaptive_avg_pool2d(x, (3, 5)), (image(1, 2, 8, 8),)),
        ("adaptive pooling", lambda _, x: torch.nn.functional.adaptive_max_pool2d(x, (2, 4)), (image(1, 2, 8, 8),)),
        ("unequal windows", lambda _, x: torch.nn.functional.adaptive_max_pool2d(x, (3, 5)), (image(1, 2, 8, 7),)),
        ("one image", lambda _, x: torch.nn.functional.adaptive_max_pool2d(x, 4), (image(2, 8, 8),)),
        ("a row", lambda _, x: torch.nn.functional.adaptive_max_pool1d(x, 3), (image(1, 2, 8),)),
        ("unequal boxes", lambda _, x: torch.nn.functional.adaptive_max_pool3d(x, (2, 3, 4)), (image(1, 2, 5, 4, 6),)),
        ("means of boxes", lambda _, x: torch.nn.functional.adaptive_avg_pool3d(x, (2, 3, 4)), (image(1, 2, 5, 4, 6),)),
        ("means of a row", lambda _, x: torch.nn.functional.adaptive_avg_pool1d(x, 3), (image(1, 2, 8),)),
        ("nothing beside", lambda _, x: {"a": x.exp(), "b": None}, (image(2, 3),)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_tvm_would_get_wrong(name: str, function: Any, inputs: Any) -> None:
    check_outputs(export(function, *inputs), *inputs)
