"""Speed, as ratios inside one run: against plain code and the machine's own rates."""
