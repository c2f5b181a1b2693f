"""Facts that are tied to the moments of a conversation that prove them."""
