"""Figures of a run: training curves, scores, embeddings."""
