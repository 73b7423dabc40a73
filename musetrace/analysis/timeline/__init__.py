"""When things run: ops, blocks, launches, steps."""
