"""A whole decode step and its parts, stamps on and off, beside the chain of ordinary kernels; on a GPU."""
