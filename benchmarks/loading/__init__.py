"""What `benchmarks.load` is made of: the stores, the servers, the clients, and the check of what they did."""
