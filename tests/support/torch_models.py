"""Small PyTorch models of the kinds that users have, with random weights, and the ways to run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import pipeline
from pipeline.split.graph import Graph
from tests.support.onnx_models import assert_close, in_stages


class Plain(nn.Module):  # type: ignore[misc]
    """A function of its inputs, and modules that it uses."""

    def __init__(self, function: Callable[..., Any], **modules: Any) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


class Counter(nn.Module):  # type: ignore[misc]
    """Keeps how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, values: Tensor) -> Tensor:
        self.count += 1
        return values + self.count


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, image: Tensor) -> Tensor:
        features = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(image)))))
        features += self.downsample(image)
        result: Tensor = self.relu(features)
        return result


class ResNet(nn.Module):  # type: ignore[misc]
    """As ResNet-18, with fewer channels."""

    def __init__(self, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        for number in range(4):
            outputs, inputs = width << number, width << max(number - 1, 0)
            stage = nn.Sequential(Block(inputs, outputs, 2 if number else 1), Block(outputs, outputs, 1))
            setattr(self, f"layer{number + 1}", stage)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(width * 8, classes)

    def forward(self, image: Tensor) -> Tensor:
        values = self.maxpool(self.relu(self.bn1(self.conv1(image))))
        for number in range(4):
            values = getattr(self, f"layer{number + 1}")(values)
        logits: Tensor = self.fc(torch.flatten(self.avgpool(values), 1))
        return logits


class Layer(nn.Module):  # type: ignore[misc]
    """A layer of a vision transformer, the norm in front."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        normalised_value = self.norm1(tokens)
        tokens = tokens + self.attention(normalised_value, normalised_value, normalised_value, need_weights=False)[0]
        result: Tensor = tokens + self.mlp(self.norm2(tokens))
        return result


class VisionTransformer(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int = 48, heads: int = 3, layers: int = 3, classes: int = 10) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 17, width))
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        tokens = self.patches(image).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(image), -1, -1), tokens], 1) + self.positions
        logits: Tensor = self.head(self.norm(self.layers(tokens))[:, 0])
        return logits


class EncoderLayer(nn.Module):  # type: ignore[misc]
    """A layer of BERT, its attention written by hand, the norm behind."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 4 * width)
        self.outer = nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (
            part(tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        mixture = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        tokens = self.norm1(tokens + self.output(mixture.transpose(1, 2).flatten(2)))
        result: Tensor = self.norm2(tokens + self.outer(functional.gelu(self.inner(tokens))))
        return result


class Encoder(nn.Module):  # type: ignore[misc]
    """As BERT: words and a mask of those that count."""

    def __init__(self, words: int = 100, width: int = 48, heads: int = 4, layers: int = 3, longest: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.positions = nn.Embedding(longest, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        positions = torch.arange(input_ids.shape[1])
        tokens = self.norm(self.words(input_ids) + self.positions(positions))
        mask = (1.0 - attention_mask[:, None, None, :].to(tokens.dtype)) * torch.finfo(tokens.dtype).min
        for layer in self.layers:
            tokens = layer(tokens, mask)
        return {"last_hidden_state": tokens, "pooler_output": torch.tanh(self.pooler(tokens[:, 0]))}


def randomise(module: nn.Module) -> nn.Module:
    """Return `module` for inference, with statistics as after training."""
    generator = torch.Generator().manual_seed(0)
    for item in module.modules():
        if isinstance(item, nn.BatchNorm2d):
            assert item.running_mean is not None
            assert item.running_var is not None
            item.running_mean.copy_(torch.randn(item.running_mean.shape, generator=generator) * 0.1)
            item.running_var.copy_(torch.rand(item.running_var.shape, generator=generator) + 0.5)
    return module.eval()


def export(function: Callable[..., Any], *inputs: Any, **modules: Any) -> Any:
    return torch.export.export(Plain(function, **modules).eval(), inputs)


def run_by_pytorch(graph: Graph, program: Any, values: Any) -> dict[str, np.ndarray]:
    """Run PyTorch, and return its outputs by the graph's names."""
    from pipeline.frontends.torch.reference import evaluate

    return dict(zip([spec.name for spec in graph.outputs], evaluate(program, values), strict=True))


def check_outputs(program: Any, *inputs: Any, tolerance: float = 1e-5) -> Graph:
    graph = pipeline.read(program)
    values = {spec.name: each.numpy() for spec, each in zip(graph.inputs, inputs, strict=True)}
    assert_close(in_stages(graph, [], values), run_by_pytorch(graph, program, values), tolerance)
    return graph


def image(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))
