"""Benchmarks of speed and memory, compared with NumPy, scikit-learn and BLAS."""
