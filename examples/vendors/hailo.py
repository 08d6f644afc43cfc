"""NPUs of Hailo's (Hailo-8, Hailo-8L, ...): a loader for HailoRT, and the command that compiles for it.

Never run on the chip: written after Hailo's examples, and tested with a stand-in for their packages.

On the board, HailoRT's Python package (hailo_platform) runs the artifacts; the Dataflow Compiler (hailo_sdk_client), on
a PC, makes them. To install it, copy this file as soc_pipeline_hailo.py beside this pyproject.toml, and call
'pip install .':

    [project]
    name = "soc-pipeline-hailo"
    version = "0.1"

    [project.entry-points."soc_pipeline.loaders"]
    hailo = "soc_pipeline_hailo:HailoLoader"

    [tool.setuptools]
    py-modules = ["soc_pipeline_hailo"]

The board 'raspberry-pi-5-hailo' has its device. Options: inputs and outputs, lists of the artifact's own names in the
order of the stage's, where it has several and orders them otherwise; timeout_ms of a frame, by default 10000.

The compiler quantises, and needs typical inputs of each stage: docs/vendors.md has a program that makes them, in files
such as stage1-relu1.npy. Name their folder in the command: --calibration /home/me/calibration.
"""

import argparse
import contextlib
import importlib.util
from pathlib import Path

import numpy as np


class HailoLoader:
    """Runs artifacts of Hailo's compiler; stages of one process share the chip by HailoRT's scheduler."""

    def __init__(self, options, cores):
        self._options = options
        self._resources = contextlib.ExitStack()
        self._device = None

    @staticmethod
    def why_absent(options):
        if importlib.util.find_spec("hailo_platform") is None:
            return "HailoRT's Python package, hailo_platform, is not installed"
        from hailo_platform import Device

        return "" if Device.scan() else "HailoRT finds no chip"

    def open(self, artifact, inputs, outputs):
        model = self._open_device().create_infer_model(str(artifact))
        input_names = self._options.get("inputs") or model.input_names
        output_names = self._options.get("outputs") or model.output_names
        # Before it is configured, or it stays with bytes.
        for name, spec in zip(input_names, inputs, strict=True):
            model.input(name).set_format_type(format_type(spec))
        for name, spec in zip(output_names, outputs, strict=True):
            model.output(name).set_format_type(format_type(spec))
        configured_model = self._resources.enter_context(model.configure())
        return model, configured_model, input_names, dict(zip(output_names, outputs, strict=True))

    def run(self, program, arrays):
        model, configured_model, input_names, outputs = program
        buffers = {name: np.empty(model.output(name).shape, spec.dtype) for name, spec in outputs.items()}
        bindings = configured_model.create_bindings(output_buffers=buffers)
        for name, array in zip(input_names, arrays, strict=True):
            bindings.input(name).set_buffer(channels_last(array).reshape(model.input(name).shape))
        configured_model.run([bindings], self._options.get("timeout_ms", 10000))
        return [channels_first(buffers[name], spec.shape) for name, spec in outputs.items()]

    def close(self):
        self._device = None
        self._resources.close()

    def _open_device(self):
        from hailo_platform import HailoSchedulingAlgorithm, VDevice

        if self._device is None:
            parameters = VDevice.create_params()
            parameters.scheduling_algorithm = HailoSchedulingAlgorithm.ROUND_ROBIN
            # One chip for all stages: each on its own would find it taken.
            parameters.group_id = "SHARED"
            self._device = self._resources.enter_context(VDevice(parameters))
        return self._device


def format_type(spec):
    from hailo_platform import FormatType

    return {"float32": FormatType.FLOAT32, "uint8": FormatType.UINT8}[spec.dtype]


def channels_last(array):
    """Return one frame, which HailoRT wants without a batch's axis."""
    if array.shape[0] != 1:
        raise ValueError(f"a frame of the shape {list(array.shape)} has several items; plan for one")
    return np.ascontiguousarray(array[0].transpose(1, 2, 0) if array.ndim == 4 else array[0])


def channels_first(array, shape):
    """Return a result in the stage's own order of axes."""
    if len(shape) != 4:
        return array.reshape(shape)
    _, channels, height, width = shape
    return np.ascontiguousarray(array.reshape(height, width, channels).transpose(2, 0, 1)).reshape(shape)


def calibration_inputs(model, folder):
    """Return the typical inputs of a stage, by the names of its layers; files are called after its tensors."""
    import onnx

    arrays = {}
    for number, value in enumerate(onnx.load(model).graph.input, 1):
        name = value.name.replace("/", "_")
        files = sorted(Path(folder).glob(f"*-{name}.npy"))
        if len(files) != 1:
            raise SystemExit(f"{folder} must have one file *-{name}.npy, and has {len(files)}")
        array = np.load(files[0])
        arrays[f"stage/input_layer{number}"] = array.transpose(0, 2, 3, 1) if array.ndim == 4 else array
    return arrays


def main():
    """Compile an ONNX model: python -m soc_pipeline_hailo stage.onnx stage.hef --calibration FOLDER."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("model")
    parser.add_argument("artifact")
    parser.add_argument("--target", default="hailo8l", help="the chip")
    parser.add_argument("--calibration", help="a folder with typical inputs of the stages")
    options = parser.parse_args()
    if options.calibration is None:
        parser.error("the compiler quantises; add --calibration FOLDER to the command, see docs/vendors.md")
    inputs = calibration_inputs(options.model, options.calibration)
    from hailo_sdk_client import ClientRunner

    runner = ClientRunner(hw_arch=options.target)
    runner.translate_onnx_model(options.model, "stage")
    runner.optimize(inputs)
    Path(options.artifact).write_bytes(runner.compile())


if __name__ == "__main__":
    main()
