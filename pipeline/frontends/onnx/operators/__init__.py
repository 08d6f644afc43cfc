"""Converters of ONNX operators that TVM lacks or gets wrong: one file per family."""
