"""Blocks: memory of a user in two files, each replaced as a whole by compare-and-set."""
