"""Network floor: Flax Linen backbones and heads."""
