"""Where cells are run: in this process, in several, or on a cluster."""
