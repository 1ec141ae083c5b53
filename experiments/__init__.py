"""Plan, run, store and resume experiments: between the methods and the report.

The subpackages, bottom up:

================  ==================================================================
``console``       consoles, parsers of command lines, errors in one line
``config``        from the command line and ``conf/`` to checked values
``cell``          the unit of work and its identity
``store``         finished cells in files, and the tables that are read from them
``fit``           one cell to its rows: load, fit, evaluate, make rows
``plan``          a paper and a profile to cells, and how long these will take
``backends``      where cells are run
``mlflow``        stored results as runs of MLflow
``reports``       a paper run and reported, and two stores compared
``applications``  the verbs that Hydra configures
``commands``      the verbs of ``pkm``
================  ==================================================================
"""
