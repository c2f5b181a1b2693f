"""Sandboxes run commands: the port, and its adapters."""
