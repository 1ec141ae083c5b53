"""What single papers need: functions of figures, and ``<paper>_checks.py``."""
