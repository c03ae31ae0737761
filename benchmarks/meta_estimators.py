"""Cost, memory and direction of every estimator of `pujax.meta.meta_gradient`.

    python benchmarks/meta_estimators.py --steps=16,256 --rounds=9 [--pytorch=PYTHON]

With `--pytorch`, a Python that has PyTorch, TorchOpt and higher, their exact gradients of the same
problem are timed beside it (`meta_estimators_pytorch.py`).

The inner problem is a network of two hidden layers of 64 on 256 examples with logistic loss and
decay; half of eight groups of examples have wrong labels. The meta-parameters are the weights of
the groups, the outer loss is that of 256 clean examples. Plain steps, compiled as one loop.

- `units`: time divided by that of the same number of inner steps alone, times that number: what it
  costs in inner gradients. The fastest of alternating calls, compilation not included.
- `count`: what the definition says, a product with second derivatives counting as two gradients.
- `MB`: what the compiled program needs besides its arguments and results.
- `cosine`: of the angle to the exact gradient. `residual`: of the linear system, if there is one.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from pujax import checks, meta

_STEPS = flags.DEFINE_list("steps", ["16", "256"], "Inner steps K, a table each.")
_ROUNDS = flags.DEFINE_integer("rounds", 9, "Timed calls of each estimator.", lower_bound=1)
_PYTORCH = flags.DEFINE_string("pytorch", "", "A Python with PyTorch, TorchOpt and higher.")
_SEED = flags.DEFINE_integer("seed", 0, "Of data, parameters and perturbations.")
_GROUPS, _BATCH, _DIM, _WIDTH = 8, 256, 16, 64
_RATE = 0.3


def arrays_of(seed: int) -> dict[str, np.ndarray]:
    """Data and first parameters."""
    rng = np.random.default_rng(seed)
    x, x_clean = rng.normal(size=(2, _BATCH, _DIM)).astype(np.float32)
    direction = rng.normal(size=_DIM)
    signs, clean_signs = (np.sign(inputs @ direction).astype(np.float32) for inputs in (x, x_clean))
    group = np.arange(_BATCH) % _GROUPS
    signs = np.where((group % 2 == 0) & (rng.random(_BATCH) < 0.4), -signs, signs)
    sizes = (_DIM, _WIDTH, _WIDTH, 1)
    kernels = {
        f"kernel_{i}": rng.normal(size=shape).astype(np.float32) / np.float32(np.sqrt(shape[0]))
        for i, shape in enumerate(zip(sizes[:-1], sizes[1:], strict=True))
    }
    found = {"x": x, "x_clean": x_clean, "signs": signs, "clean_signs": clean_signs, "group": group}
    return found | kernels


def problem(arrays: dict[str, np.ndarray]):
    """Inner loss, outer loss, parameters and weights of the groups."""
    x, x_clean, signs = arrays["x"], arrays["x_clean"], arrays["signs"]
    clean_signs, group = arrays["clean_signs"], arrays["group"]
    params = [arrays[f"kernel_{i}"] for i in range(3)]

    def scores(params, inputs):
        hidden = inputs
        for kernel in params[:-1]:
            hidden = jnp.tanh(hidden @ kernel)
        return (hidden @ params[-1])[:, 0]

    def inner(params, weights):
        losses = jax.nn.softplus(-signs * scores(params, x))
        decay = sum(jnp.sum(kernel**2) for kernel in params)
        return jnp.mean(weights[group] * losses) + 0.05 * decay

    def outer(params):
        return jnp.mean(jax.nn.softplus(-clean_signs * scores(params, x_clean)))

    return inner, outer, params, np.ones(_GROUPS, np.float32)


def estimators(steps: int, key: jax.Array):
    """Rows of the table: estimator, options, and the count of inner gradients."""
    n, segment, pairs = _GROUPS, round(steps**0.5), 16
    random = {"key": key, "num_pairs": pairs, "sigma": 0.1}
    system = {"max_residual": float("inf")}
    return [
        ("reverse", {}, 3 * steps),
        ("reverse", {"segment": segment}, 4 * steps),
        ("mixed", {}, 3 * steps),
        ("mixed", {"segment": segment}, 4 * steps),
        ("forward", {}, (1 + n) * steps),
        ("truncated", {"window": 4}, steps + 8),
        ("one_step", {}, steps + 2),
        ("implicit_cg", {"max_iterations": 20, **system}, steps + 2 * 20),
        ("implicit_neumann", {"num_terms": 20, **system}, steps + 2 * 20),
        ("es", random, 2 * pairs * steps),
        ("pes", random, 2 * pairs * steps),
        ("finite_difference", {}, 2 * n * steps),
    ]


def table(steps: int, seed: int, rounds: int) -> None:
    """Measures and prints a table for a number of inner steps."""
    arrays = arrays_of(seed)
    inner, outer, params, weights = problem(arrays)

    def compiled(estimator, options):
        def gradient(weights):
            return meta.meta_gradient(
                inner,
                outer,
                params,
                weights,
                learning_rate=_RATE,
                estimator=estimator,
                num_steps=steps,
                rolled=True,
                return_info=True,
                **options,
            )

        def result(weights):
            found, info = gradient(weights)
            return found, info.residual

        return jax.jit(result).lower(weights).compile()

    def plain_steps(weights):
        def step(params, _):
            return meta.virtual_step(lambda p: inner(p, weights), params, learning_rate=_RATE), None

        return jax.lax.scan(step, jax.tree.map(jnp.asarray, params), length=steps)[0]

    rows = estimators(steps, jax.random.key(seed))
    calls = [jax.jit(plain_steps).lower(weights).compile()]
    calls += [compiled(estimator, options) for estimator, options, _ in rows]
    results = [jax.block_until_ready(call(weights)) for call in calls][1:]
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, spent in zip(calls, times, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(call(weights))
            spent.append(time.perf_counter() - start)
    unit = min(times[0]) / steps
    exact = np.asarray(results[0][0], np.float64)
    write = sys.stdout.write
    write(f"\nK = {steps}, one inner step {1e6 * unit:.0f} us\n\n")
    write("| estimator | units | count | MB | cosine | residual |\n|---|---|---|---|---|---|\n")
    for (name, options, count), call, spent, (found, residual) in zip(
        rows, calls[1:], times[1:], results, strict=True
    ):
        found = np.asarray(found, np.float64)
        cosine = found @ exact / np.linalg.norm(found) / np.linalg.norm(exact)
        shown = {k: v for k, v in options.items() if k not in ("key", "max_residual")}
        words = ", ".join(f"`{key}={value}`" for key, value in shown.items())
        memory = call.memory_analysis().temp_size_in_bytes / 1e6
        units = min(spent) / unit
        write(
            f"| {name}{', ' if words else ''}{words} | {units:.0f} | {count} "
            f"| {memory:.2f} | {cosine:.4f} | {'' if residual is None else f'{residual:.2g}'} |\n"
        )
    for found in in_pytorch(arrays, steps, rounds) if _PYTORCH.value else ():
        gradient = np.asarray(found["gradient"])
        cosine = gradient @ exact / np.linalg.norm(gradient) / np.linalg.norm(exact)
        own = found["seconds"] / found["inner"] * steps
        write(
            f"| {found['name']} {found['version']}, PyTorch {found['torch']} "
            f"| {found['seconds'] / unit:.0f} ({own:.0f} of its own) | {3 * steps} | "
            f"| {cosine:.4f} | |\n"
        )


def in_pytorch(arrays: dict[str, np.ndarray], steps: int, rounds: int) -> list[dict]:
    """What `meta_estimators_pytorch.py` finds for the same problem in another Python."""
    script = pathlib.Path(__file__).with_name("meta_estimators_pytorch.py")
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/problem.npz", **arrays)
        command = [_PYTORCH.value, str(script), f"{folder}/problem.npz"]
        command += [f"--steps={steps}", f"--rounds={rounds}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main(_) -> None:
    """Prints a table for each number of steps."""
    if _PYTORCH.value:
        python = shutil.which(_PYTORCH.value)
        checks.require(python is not None, "--pytorch", _PYTORCH.value, "a program to run")
    for steps in _STEPS.value:
        checks.require(steps.isdecimal() and int(steps) > 3, "--steps", steps, "integers from 4")
    sys.stdout.write(f"jax {jax.__version__}, {jax.devices()[0].device_kind}\n")
    for steps in _STEPS.value:
        table(int(steps), _SEED.value, _ROUNDS.value)


if __name__ == "__main__":
    app.run(main)
