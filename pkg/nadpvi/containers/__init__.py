"""The two containers that cross the wall and leave it: `Release` and `Posterior`, and their files."""
