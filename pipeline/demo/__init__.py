"""Demo: a small trained network, streamed unsplit and split for comparison."""
