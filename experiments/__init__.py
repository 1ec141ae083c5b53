"""Plan, run, store and resume experiments: the room between the methods and the report.

The unit of work is a cell (`experiments.cell`). A plan (`experiments.plan`) lists cells, a backend
(`experiments.backends`) executes the missing ones (`experiments.execute`), each lands in the store
(`experiments.store`) atomically, and MLflow is a projection of that store (`experiments.tracking`).
The ways in are `python -m experiments.run` and `python -m experiments.reproduce`.
"""
