"""Recall: find the lines that a query is about. Embedded, without a model, rebuilt from the files."""
