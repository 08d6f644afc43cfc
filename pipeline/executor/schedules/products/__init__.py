"""Products of matrices: by weights, and of data by data."""
