"""The tools of memorize: store a fact with its proof, and find, show and forget such facts."""
