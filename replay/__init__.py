"""What runs afterwards: rebuild, re-execute, compare, locate, explain."""
