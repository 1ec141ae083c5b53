"""Generated data sets: a table of families, and the samplers that draw their points."""
