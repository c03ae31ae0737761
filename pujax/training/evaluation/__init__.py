"""Comparison with the truth: metrics, choice of an epoch, summaries, by kind of problem."""
