"""How fast and how busy the server is, for those who run it."""
