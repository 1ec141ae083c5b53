"""From the command line and conf/ to checked values."""
