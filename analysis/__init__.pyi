# What `__getattr__` of the package imports when it is first used.
from pkm.analysis.render.draw import figure as figure
