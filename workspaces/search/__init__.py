"""Recall: finding the lines that a question is about. Embedded, without a model, rebuilt from files."""
