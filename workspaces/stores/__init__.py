"""Adapters of the two ports. Only `locations` names them."""
