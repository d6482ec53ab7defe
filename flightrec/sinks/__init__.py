"""Live outputs of numbers while a run goes on, one per file."""
