"""ONNX's operators that TVM lacks or gets wrong, in Relax: one file per family, one registry."""
