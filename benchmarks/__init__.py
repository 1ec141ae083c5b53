"""Speed, measured as ratios inside one run: against straightforward numpy, against the machine's own arithmetic."""
