"""Worker processes that play environments."""
