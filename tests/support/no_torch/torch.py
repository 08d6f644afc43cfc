"""In place of PyTorch: TVM imports that wherever it is installed, which takes most of a process's start."""

raise ModuleNotFoundError("No module named 'torch'", name="torch")
