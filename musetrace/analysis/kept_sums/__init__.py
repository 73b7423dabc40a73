"""Answers made of sums that merge, which the index keeps."""
