"""How far a number can be trusted: tick, clocks of ranks, what was recorded, spread."""
