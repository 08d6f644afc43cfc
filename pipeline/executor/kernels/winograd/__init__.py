"""3x3 convolutions by way of transformed tiles."""
