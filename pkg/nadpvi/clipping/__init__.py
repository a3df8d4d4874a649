"""Where clipping moves the optimum of a run, by how much, and the parameters without it. Public side."""
