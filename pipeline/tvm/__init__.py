"""The one door to TVM."""
