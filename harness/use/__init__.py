"""Using a workspace from other agents: what is changed in their configuration, and taking it back."""
