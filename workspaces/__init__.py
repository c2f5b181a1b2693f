"""Files, versions, history, sync, and who may touch them. This package knows no model, prompt or HTTP."""
