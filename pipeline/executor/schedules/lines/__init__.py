"""What works line by line: reductions, softmax, normalization."""
