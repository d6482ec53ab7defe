"""What runs inside the user's process, the incident format, the store, the command line."""
