"""What a timeline shows of a window of time and rows: spans one by one near, a raster far out."""
