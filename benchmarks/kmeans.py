"""k-means of 49,500 unit rows of 128 numbers on one core: ours, and scikit-learn's.

    OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/kmeans.py

LaGAM's sizes on CIFAR-10: 100 clusters, 20 iterations, 5 starts. CPU seconds after compilation.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.cluster import KMeans

from pujax import clustering


def main() -> None:
    """Prints CPU seconds and inertia of both."""
    rows = jax.random.normal(jax.random.key(0), [49_500, 128])
    rows = rows / jnp.linalg.norm(rows, axis=1, keepdims=True)

    def ours(seed: int) -> float:
        return float(clustering.kmeans(jax.random.key(seed), rows, num_clusters=100).inertia)

    def theirs(seed: int) -> float:
        options = {"init": "random", "n_init": 5, "max_iter": 20, "tol": 0.0}
        return float(KMeans(100, random_state=seed, **options).fit(np.asarray(rows)).inertia_)

    ours(0)  # compiles
    for name, run in (("pujax", ours), ("scikit-learn", theirs)):
        started = time.process_time()
        inertia = run(1)
        print(f"{name}: {time.process_time() - started:.1f} CPU s, inertia {inertia:.1f}")


if __name__ == "__main__":
    main()
