"""The built-in decode step as the sides of a measurement; needs torch."""
