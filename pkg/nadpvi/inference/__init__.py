"""Posterior methods: draws of the optimum and the curvature from the post-processing model."""
