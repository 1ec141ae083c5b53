"""Plan, run, store and resume experiments: between the methods and the report.

The unit of work is a cell (`pkm.experiments.cell`). A plan (`pkm.experiments.plan`) lists cells, a
backend (`pkm.experiments.backends`) executes the missing ones (`pkm.experiments.execute`), each
is stored atomically (`pkm.experiments.store`), and the store is copied to MLflow
(`pkm.experiments.tracking`). The entry points are `pkm run` and `pkm reproduce`.
"""
