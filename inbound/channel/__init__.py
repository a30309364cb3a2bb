"""One partition's path, from the poll to the landed commit."""
