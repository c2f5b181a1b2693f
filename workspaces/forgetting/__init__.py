"""Texts that must not come back: their words, their tombstones, and finding them."""
