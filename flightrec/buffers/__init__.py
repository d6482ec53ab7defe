"""Where the numbers of a run wait: statistics of a step, the ring of recent steps."""
