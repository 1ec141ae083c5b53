"""What single papers need: functions of figures."""
