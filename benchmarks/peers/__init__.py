"""Other consumers that do the same work, each with pinned requirements of its own. See `benchmarks.drain`."""
