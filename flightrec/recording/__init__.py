"""The live machine between probes and files: follow a step, judge it, draft it, file it."""
