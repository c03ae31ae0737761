"""The parts of `benchmarks/accelerator.py`: what each measures, and how they share a budget."""
