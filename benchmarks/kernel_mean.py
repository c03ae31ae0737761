"""Seconds, memory and certified error of KM1 and KM2 together, against the usual implementation.

    python benchmarks/kernel_mean.py --points=500,1000,2000 --dims=10
    python benchmarks/kernel_mean.py --points=10000 --usual_up_to=0

The usual implementation solves 34 quadratic programmes, one for KM2's threshold, one at lambda = 1
and 32 for the two bisections, each with a dense interior point from a cold start. Here one of them
is timed and multiplied; below 3,000 points both sides use one thread. Points are unit Gaussians,
two fifths of them P, whose positives are shifted along two axes; 30 percent of U are positive. Few
features give a kernel of low rank, many one of full rank, and three to five are the hardest.
"""

import resource
import sys
import time

import jax
import numpy as np
import threadpoolctl
from absl import app, flags

from pujax import priors
from pujax.priors import _hull_projection, _interior_point, _kernel_mean

_POINTS = flags.DEFINE_list("points", ["500", "1000", "2000"], "Examples of P and U together.")
_DIMS = flags.DEFINE_list("dims", ["2", "4", "10", "50"], "Features.")
_USUAL_UP_TO = flags.DEFINE_integer("usual_up_to", 2000, "Most points to time a dense step on.")
_LAMBDA = 1.5  # of the programme that is timed for the usual implementation
_USUAL_PROGRAMMES = 34


def _samples(num_points, dim):
    rng = np.random.default_rng(0)
    offset = np.where(np.arange(dim) < 2, 2.0, 0)
    positives = rng.normal(size=(num_points * 2 // 5, dim)) + offset
    unlabeled = rng.normal(size=(num_points - len(positives), dim))
    unlabeled[: round(0.3 * len(unlabeled))] += offset
    return positives, unlabeled


def _usual_seconds(positives, unlabeled):
    """The time of all programmes by a dense interior point."""
    n, m = len(unlabeled), len(positives)
    kernel = _kernel_mean.gaussian_kernel(unlabeled, positives)
    target = np.repeat([_LAMBDA / n, (1 - _LAMBDA) / m], [n, m])
    start = time.perf_counter()
    linear = kernel @ target
    with threadpoolctl.threadpool_limits(1 if n + m < 3000 else None):
        _interior_point.nearest(
            _interior_point.dense(kernel),
            np.ones(n + m),
            linear,
            squared=float(target @ linear),
            tolerance=1e-8,
        )
    return _USUAL_PROGRAMMES * (time.perf_counter() - start)


def _record_errors(errors):
    """Makes the library record the certified error of each programme that it solves."""
    project = _hull_projection.Projector.project

    def recording(self, *args, **kwargs):
        projection = project(self, *args, **kwargs)
        errors.append(projection.error)
        return projection

    _hull_projection.Projector.project = recording


def main(argv):
    """Prints a line per size."""
    del argv
    errors = []
    _record_errors(errors)
    write = sys.stdout.write
    write(f"jax {jax.__version__}, numpy {np.__version__}\n")
    write(
        f"{'points':>7s} {'features':>8s} {'KM1':>6s} {'KM2':>6s} {'programmes':>10s} "
        f"{'seconds':>8s} {'usual, s':>9s} {'ratio':>6s} {'peak, GB':>8s} {'error of d':>10s}\n"
    )
    for num_points in map(int, _POINTS.value):
        for dim in map(int, _DIMS.value):
            samples = _samples(num_points, dim)
            errors.clear()
            start = time.perf_counter()
            km1, km2 = priors.km(*samples)
            seconds = time.perf_counter() - start
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            usual = _usual_seconds(*samples) if num_points <= _USUAL_UP_TO.value else np.nan
            write(
                f"{num_points:7d} {dim:8d} {km1.value:6.3f} {km2.value:6.3f} "
                f"{len(errors):10d} {seconds:8.2f} {usual:9.1f} {usual / seconds:6.1f} "
                f"{peak:8.2f} {max(errors):10.1e}\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    app.run(main)
