"""The ways to a batch's per-record gradients; all of them give equal numbers. Private side."""
