"""Writes ONNX files of networks that people use now, with random weights, for bench/model_speed.py.

    python bench/current_models.py FOLDER [NAMES]

The architectures come from timm, torchvision, Ultralytics and transformers; install them into an environment of their
own beside torch, onnxscript and onnxruntime.  Norms get statistics of random frames, so that values keep their size
from layer to layer as in a trained network.  int8 files are quantised by ONNX Runtime's quantize_static (QDQ, weights
per channel).  Nothing is downloaded, and files that are there stay.
"""

# Its packages, which have types that mypy does not see, are in an environment of their own.
# mypy: disable-error-code="misc,import-not-found,import-untyped,no-any-return,attr-defined,no-untyped-call"

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

# So many random frames give a norm its statistics, and a quantiser its ranges.
FRAMES = 4


def main() -> None:
    """Write the files that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or MODELS:
        path = options.folder / f"{name}.onnx"
        if not path.exists():
            MODELS[name](path)
            print(path, f"{path.stat().st_size / 1e6:.1f} MB", flush=True)


def export(path: Path, model: Any, *frame: Any, half: bool = False) -> None:
    """Write a module as ONNX, after random frames have set its norms' statistics."""
    import torch

    with torch.no_grad():
        model.train()
        for module in model.modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):  # noqa: SLF001 - the base of all batch norms
                module.momentum = 1.0
            elif not isinstance(module, torch.nn.Sequential) and "Drop" in type(module).__name__:
                module.eval()
        # Two frames at once: the statistics of one value have no variance.
        model(*(torch.cat([torch.randn_like(part), part]) if part.is_floating_point() else part for part in frame))
        model.eval()
        if half:
            model, frame = model.half(), tuple(part.half() for part in frame)
        model(*frame)
    torch.onnx.export(model, frame, path, dynamo=True, external_data=False, verbose=False)


def timm_model(name: str, side: int = 224) -> Callable[[Path], None]:
    """Return what writes a classifier of timm."""

    def write(path: Path) -> None:
        import timm
        import torch

        torch.manual_seed(0)
        export(path, timm.create_model(name, pretrained=False, exportable=True), torch.randn(1, 3, side, side))

    return write


def ultralytics_model(name: str, side: int, *, half: bool = False) -> Callable[[Path], None]:
    """Return what writes a detector of Ultralytics, with its decoding."""

    def write(path: Path) -> None:
        import torch
        from ultralytics import YOLO

        torch.manual_seed(0)
        model = YOLO(f"{name}.yaml", verbose=False).model.fuse(verbose=False).eval()
        head = model.model[-1]
        head.export, head.format = True, "onnx"
        frame = torch.randn(1, 3, side, side)
        model(frame)
        if half:
            model, frame = model.half(), frame.half()
        torch.onnx.export(model, (frame,), path, dynamo=False, opset_version=17)

    return write


def segmentation(path: Path) -> None:
    """Write torchvision's LR-ASPP over MobileNetV3."""
    import torch
    from torchvision.models import segmentation as models

    class Scores(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = models.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None)

        def forward(self, frame: Any) -> Any:
            return self.model(frame)["out"]

    torch.manual_seed(0)
    export(path, Scores(), torch.randn(1, 3, 320, 320))


def unet(path: Path) -> None:
    """Write a U-Net of 16 to 128 channels at 256x256."""
    import torch
    from torch import nn

    def block(inputs: int, outputs: int) -> Any:
        convolutions = [nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)]
        return nn.Sequential(*(part for each in convolutions for part in (each, nn.BatchNorm2d(outputs), nn.ReLU())))

    class UNet(nn.Module):
        def __init__(self, widths: tuple[int, ...] = (16, 32, 64, 128)) -> None:
            super().__init__()
            self.down = nn.ModuleList(map(block, (3, *widths), widths))
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, 2) for width in widths[:-1])
            self.fuse = nn.ModuleList(block(2 * width, width) for width in widths[:-1])
            self.head = nn.Conv2d(widths[0], 2, 1)

        def forward(self, value: Any) -> Any:
            maps = []
            for number, part in enumerate(self.down):
                value = part(nn.functional.max_pool2d(value, 2) if number else value)
                maps.append(value)
            for level in (2, 1, 0):
                value = self.fuse[level](torch.cat([self.up[level](value), maps[level]], 1))
            return self.head(value)

    torch.manual_seed(0)
    export(path, UNet(), torch.randn(1, 3, 256, 256))


def text_recognition(path: Path) -> None:
    """Write a CRNN (Shi et al., 2015): convolutions, and two bidirectional LSTMs over a line of text."""
    import torch
    from torch import nn

    class Crnn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers: list[Any] = []
            widths, pools = (1, 64, 128, 256, 256, 512, 512), (2, 2, None, (2, 1), None, (2, 1))
            for inputs, outputs, pool in zip(widths, widths[1:], pools, strict=False):
                layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
                layers += [nn.MaxPool2d(pool)] if pool else []
            self.layers = nn.Sequential(*layers, nn.Conv2d(512, 512, 2), nn.ReLU())
            self.lines = nn.LSTM(512, 256, num_layers=2, bidirectional=True)
            self.head = nn.Linear(512, 97)

        def forward(self, value: Any) -> Any:
            return self.head(self.lines(self.layers(value).squeeze(2).permute(2, 0, 1))[0])

    torch.manual_seed(0)
    model = Crnn().eval()
    torch.onnx.export(model, (torch.randn(1, 1, 32, 160),), path, dynamo=False, opset_version=17)


def keyword_lstm(path: Path) -> None:
    """Write two LSTMs over a second of 40 features, and a classifier."""
    import torch
    from torch import nn

    class Keyword(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lines = nn.LSTM(40, 128, num_layers=2, batch_first=True)
            self.head = nn.Linear(128, 12)

        def forward(self, value: Any) -> Any:
            return self.head(self.lines(value)[0][:, -1])

    torch.manual_seed(0)
    torch.onnx.export(Keyword().eval(), (torch.randn(1, 98, 40),), path, dynamo=False, opset_version=17)


def encoder(path: Path) -> None:
    """Write a BERT of 4 layers of 256 (Turc et al., 2019), for 64 tokens."""
    import torch
    from transformers import BertConfig, BertModel

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
            self.model = BertModel(BertConfig(**sizes, attn_implementation="eager"))

        def forward(self, tokens: Any) -> Any:
            return self.model(tokens, attention_mask=torch.ones_like(tokens))[0]

    torch.manual_seed(0)
    torch.onnx.export(Encoder().eval(), (torch.randint(0, 1000, (1, 64)),), path, dynamo=True, external_data=False)


def quantized(name: str) -> Callable[[Path], None]:
    """Return what writes the int8 file of a model."""

    def write(path: Path) -> None:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process

        class Frames(CalibrationDataReader):
            def __init__(self, source: Path) -> None:
                self.frames = random_frames(source)

            def get_next(self) -> Any:
                return next(self.frames, None)

        source, prepared = path.with_name(f"{name}.onnx"), path.with_suffix(".prepared")
        if not source.exists():
            MODELS[name](source)
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared, path, Frames(prepared), QuantFormat.QDQ, per_channel=True, activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8, extra_options={"WeightSymmetric": True},
        )  # fmt: skip
        prepared.unlink()

    return write


def random_frames(path: Path) -> Iterator[dict[str, np.ndarray]]:
    """Yield random frames for a model's only input."""
    import onnxruntime

    only = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).get_inputs()[0]
    generator = np.random.default_rng(0)
    for _ in range(FRAMES):
        yield {only.name: generator.standard_normal(only.shape).astype(np.float32)}


MODELS: dict[str, Callable[[Path], None]] = {
    **{name: timm_model(name) for name in (
        "mobilenetv2_100", "mobilenetv3_small_100", "mobilenetv3_large_100", "mobilenetv4_conv_small",
        "efficientnet_b0", "efficientnet_lite0", "resnet18", "resnet50", "regnetx_004", "vit_tiny_patch16_224",
        "swin_tiny_patch4_window7_224", "convnext_atto", "ghostnet_100", "mobilevit_xs",
    )},
    "yolov8n": ultralytics_model("yolov8n", 320),
    "yolov8n_seg": ultralytics_model("yolov8n-seg", 320),
    "yolo11n": ultralytics_model("yolo11n", 320),
    "yolo11n_pose": ultralytics_model("yolo11n-pose", 320),
    "lraspp": segmentation,
    "unet": unet,
    "crnn": text_recognition,
    "keyword_lstm": keyword_lstm,
    "bert_mini": encoder,
    "yolov8n_half": ultralytics_model("yolov8n", 320, half=True),
    **{f"{name}_int8": quantized(name) for name in ("mobilenetv2_100", "resnet18", "resnet50", "yolov8n")},
}  # fmt: skip
"""What writes each model."""

if __name__ == "__main__":
    main()
