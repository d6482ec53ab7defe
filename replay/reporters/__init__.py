"""Outputs for a verdict: one file each, `render(verdict, incident, out)`."""
