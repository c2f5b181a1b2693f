"""Kinds of memory, each a view on files of a workspace."""
