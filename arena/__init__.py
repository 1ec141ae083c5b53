"""Methods from anywhere on one frozen suite: entries, their verification, a ranking."""
