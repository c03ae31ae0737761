"""File formats and downloads: every function here turns files into arrays."""
