"""Which examples are labelled, unlabeled, or held out; which share of them is positive."""
