"""Hooks into a run: calls, backwards, optimizer steps, and what a forward may change."""
