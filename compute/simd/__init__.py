"""Vector registers and threads in compiled code."""
