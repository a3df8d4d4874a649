"""Experiments: many simulated runs, their tasks, and how well the posteriors do."""
