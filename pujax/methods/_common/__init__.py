"""Parts that several methods share: networks, optimizers, losses, the plain classifier."""
