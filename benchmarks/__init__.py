"""Speed, as ratios inside one run: against plain numpy and against the machine's arithmetic."""
