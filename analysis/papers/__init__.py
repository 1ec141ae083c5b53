"""What single papers need beyond their figures.yaml: functions that it names."""
