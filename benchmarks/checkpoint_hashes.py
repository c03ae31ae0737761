"""What the checksums of a checkpoint cost, on the state of a ResNet-18 that trains with momentum.

    python benchmarks/checkpoint_hashes.py [--saves=10] [--arrays=62]

Saves the same arrays in turn with and without checksums, in the background as a run does, and waits
for each; then restores them. Prints medians, and the shortest of each: how long training waits for
a save, how long it takes until the checkpoint is complete, the processor seconds of all threads for
that, which other work on the machine disturbs least, and how long a restore takes.
"""

import argparse
import statistics
import sys
import tempfile
import time

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pujax import checks, checksums
from pujax.training.checkpoint import Checkpoints, Position

_PARAMETERS = 11_173_962  # of a ResNet-18 for ten classes


def main(argv: list[str]) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--saves", type=int, default=10, help="of each kind")
    parser.add_argument("--arrays", type=int, default=62, help="of the parameters")
    options = parser.parse_args(argv)
    try:
        checks.whole_number("--saves", options.saves, 1)
        checks.whole_number("--arrays", options.arrays, 1)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    where = NamedSharding(Mesh(np.asarray(jax.devices()[:1]), ("data",)), PartitionSpec())
    rng = np.random.default_rng(0)

    def part():
        numbers = rng.normal(size=_PARAMETERS).astype(np.float32)
        return [jax.device_put(x, where) for x in np.array_split(numbers, options.arrays)]

    tree = {"params": part(), "opt_state": part()}
    size = sum(x.nbytes for x in jax.tree.leaves(tree))
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), tree)
    print(f"{size / 1e6:.0f} MB in {2 * options.arrays} arrays, {jax.devices()[0].device_kind}")
    seconds: dict[tuple[str, str], list[float]] = {}
    of_array = checksums.of_array
    for kind in ("without", "with") * (options.saves + 1):
        checksums.of_array = of_array if kind == "with" else lambda _: ""
        with tempfile.TemporaryDirectory() as folder:
            store = Checkpoints(folder + "/checkpoints", keep=1, fingerprint={})
            times, cpu = [time.perf_counter()], time.process_time()
            store.save(Position(1, 0, 1), tree)
            times.append(time.perf_counter())
            store.wait()
            cpu = time.process_time() - cpu
            times.append(time.perf_counter())
            jax.block_until_ready(store.restore_newest(lambda _: like))
            times.append(time.perf_counter())
            store.close()
        begin, waited, saved, restored = times
        found = {"waits": waited - begin, "saves": saved - begin, "restores": restored - saved}
        found["saves, CPU"] = cpu
        for what, value in found.items():
            seconds.setdefault((what, kind), []).append(value)
    checksums.of_array = of_array
    started = time.perf_counter()
    for leaf in jax.tree.leaves(tree):
        of_array(np.asarray(leaf))
    alone = time.perf_counter() - started
    for name, of in (("median", statistics.median), ("shortest", min)):
        print(f"{name:12}{'without':>10}{'with':>10}   checksums")
        for what in ("waits", "saves", "saves, CPU", "restores"):
            # The first of each kind compiles.
            both = [of(seconds[what, kind][1:]) for kind in ("without", "with")]
            more = 100 * (both[1] / both[0] - 1)
            print(f"{what:12}{both[0]:9.3f}s{both[1]:9.3f}s   {more:+.1f} %")
    print(f"checksums alone {alone:.3f} s, {size / alone / 1e9:.1f} GB/s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
