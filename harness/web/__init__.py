"""The face for programs: HTTP. One file a resource; `app` puts them together."""
