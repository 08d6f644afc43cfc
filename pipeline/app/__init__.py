"""Applications: streams, models, crops, tracks and triggers as one graph."""
