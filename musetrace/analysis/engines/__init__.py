"""Loads, compute and communication beside each other, and how fast bytes move."""
