"""Files, versions, history, sync, and who may touch them. Knows no model, no prompt, no HTTP."""
