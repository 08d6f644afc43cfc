"""Planner's solver: plain values in and out.

It knows nothing of models, TVM or threads.
"""
