"""The HTTP API, with one file per resource. `app` assembles them."""
