"""Noisy sufficient statistics, after Bernstein and Sheldon (2018, 2019). Only `records` sees records."""
