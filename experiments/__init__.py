"""Plan, run, store and resume experiments: the room between the methods and the report.

The unit of work is a cell (`pkm.experiments.cell`). A plan (`pkm.experiments.plan`) lists cells, a
backend (`pkm.experiments.backends`) executes the missing ones (`pkm.experiments.execute`), each
lands in the store (`pkm.experiments.store`) atomically, and MLflow is a projection of that store
(`pkm.experiments.tracking`). The entry points are `pkm run` and `pkm reproduce`.
"""
