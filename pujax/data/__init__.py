"""Data floor: named sources, labelling, the data set object and batches."""
