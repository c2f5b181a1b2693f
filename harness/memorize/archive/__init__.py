"""Archives: the conversations that facts cite, as they were when they were cited."""
