"""Reasons to write an incident that no detector sees, one per file."""
