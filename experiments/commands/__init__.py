"""The verbs of ``pkm``, one module each."""
