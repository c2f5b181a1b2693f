"""Readers of the conversations that other agents keep on this machine."""
