# What `__getattr__` of the package imports when it is first used.
from pkm.experiments.commands.figure import figure as figure
