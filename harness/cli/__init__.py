"""The command line, with one file per group of commands.

Each command imports the heavy modules that it needs.
"""
