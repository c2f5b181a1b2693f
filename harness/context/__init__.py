"""Builds the prompt that the model sees. Pure: no I/O, no clock, no store; values in, values out."""
