"""The planner's solver: plain values in, plain values out; it knows nothing of models, TVM or threads."""
