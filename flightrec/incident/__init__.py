"""The incident as a file: one HDF5 file, written whole or not at all, read with suspicion."""
