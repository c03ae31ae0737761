"""Method floor: one file per PU method, each a `Method` of pure functions."""
