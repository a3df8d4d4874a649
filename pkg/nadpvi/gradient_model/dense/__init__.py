"""A whole curvature matrix in place of a diagonal one: its pattern, prior, coordinates and density."""
