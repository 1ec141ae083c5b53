"""Methods in the local model."""
