"""How hypothesis feeds what may be anything: the same examples every time."""

from collections.abc import Callable

import hypothesis


def feed(examples: int, *given: hypothesis.strategies.SearchStrategy) -> Callable:
    """A decorator: the function is called with `examples` draws of each of the strategies."""
    settings = hypothesis.settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    return lambda function: settings(hypothesis.given(*given)(function))
