"""Data: files to grids."""
