"""An ONNX graph without functions, old opsets, fixed loops and computed shapes.

It runs as a program in a process of its own, see `program`: the onnx package's shape inference is C++ that aborts on
some damaged files, and would take the caller along.  So these modules import nothing of the rest of this project.
"""
