"""Where commands run: the port, and its adapters."""
