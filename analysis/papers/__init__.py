"""What single papers need: functions of their figures, and checks (``<paper>_checks.py``)."""
