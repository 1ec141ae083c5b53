"""Methods that follow Lloyd's algorithm with noisy sums and counts."""
