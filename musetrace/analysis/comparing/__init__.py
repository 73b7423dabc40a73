"""Two runs beside each other: what is faster, where the time went, in what they are not alike."""
