"""Drawing of the tables of `pkm.analysis.frames`: panels, axes, legends and one module a kind."""
