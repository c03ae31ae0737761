"""The problem of `meta_estimators.py` through TorchOpt and higher, which needs PyTorch and both.

    PYTHON benchmarks/meta_estimators_pytorch.py PROBLEM.npz --steps=16 --rounds=9

`meta_estimators.py --pytorch=PYTHON` writes the problem and runs this. For each library that is
installed it prints one line of JSON: its name and version, the fastest of the rounds in seconds for
as many inner steps alone and for the meta-gradient through them, and the gradient.
"""

import argparse
import importlib
import importlib.metadata
import json
import sys
import time

import numpy as np
import torch

RATE, DECAY = 0.3, 0.05


class Problem:
    """Losses of `meta_estimators.problem` on tensors."""

    def __init__(self, arrays):
        self.x, self.signs, self.x_clean, self.clean_signs = (
            torch.from_numpy(arrays[name]) for name in ("x", "signs", "x_clean", "clean_signs")
        )
        self.group = torch.from_numpy(arrays["group"]).long()
        self.start = [arrays[f"kernel_{i}"] for i in range(3)]
        self.num_groups = int(self.group.max()) + 1

    def net(self):
        """The network at its first parameters."""
        layers = []
        for i, kernel in enumerate(self.start):
            layer = torch.nn.Linear(*kernel.shape, bias=False)
            layer.weight.data = torch.from_numpy(kernel.T.copy())
            layers += [layer] if i == 2 else [layer, torch.nn.Tanh()]
        return torch.nn.Sequential(*layers)

    def inner(self, scores, params, weights):
        """Weighted logistic loss with decay."""
        losses = torch.nn.functional.softplus(-self.signs * scores)
        decay = sum((p**2).sum() for p in params)
        return (weights[self.group] * losses).mean() + DECAY * decay

    def outer(self, scores):
        """Logistic loss of the clean examples."""
        return torch.nn.functional.softplus(-self.clean_signs * scores).mean()


def by_torchopt(problem, steps, through):
    """`steps` steps of `MetaSGD`; the gradient through them if asked for."""
    torchopt = importlib.import_module("torchopt")
    net = problem.net()
    weights = torch.ones(problem.num_groups, requires_grad=True)
    optimizer = torchopt.MetaSGD(net, lr=RATE)
    for _ in range(steps):
        loss = problem.inner(net(problem.x)[:, 0], list(net.parameters()), weights)
        optimizer.step(loss)
    if not through:
        return None
    outer = problem.outer(net(problem.x_clean)[:, 0])
    return torch.autograd.grad(outer, weights)[0]


def by_higher(problem, steps, through):
    """The same by `higher.innerloop_ctx`."""
    higher = importlib.import_module("higher")
    net = problem.net()
    weights = torch.ones(problem.num_groups, requires_grad=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    with higher.innerloop_ctx(net, optimizer, track_higher_grads=through) as (fast, moves):
        for _ in range(steps):
            loss = problem.inner(fast(problem.x)[:, 0], list(fast.parameters()), weights)
            moves.step(loss)
        if not through:
            return None
        outer = problem.outer(fast(problem.x_clean)[:, 0])
        return torch.autograd.grad(outer, weights)[0]


def plain_steps(problem, steps):
    """The same number of steps with nothing differentiated through them."""
    net, weights = problem.net(), torch.ones(problem.num_groups)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    for _ in range(steps):
        optimizer.zero_grad()
        problem.inner(net(problem.x)[:, 0], list(net.parameters()), weights).backward()
        optimizer.step()


def fastest(rounds, call):
    """The shortest of some calls in seconds, and what the last one returned."""
    call()
    spent, found = [], None
    for _ in range(rounds):
        start = time.perf_counter()
        found = call()
        spent.append(time.perf_counter() - start)
    return min(spent), found


def main():
    """Prints a line for each library."""
    parser = argparse.ArgumentParser()
    parser.add_argument("problem")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with np.load(options.problem) as arrays:
        problem = Problem(dict(arrays))
    inner, _ = fastest(options.rounds, lambda: plain_steps(problem, options.steps))
    for name, run in (("torchopt", by_torchopt), ("higher", by_higher)):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        seconds, gradient = fastest(
            options.rounds, lambda run=run: run(problem, options.steps, True)
        )
        line = {
            "name": name,
            "version": version,
            "torch": torch.__version__,
            "inner": inner,
            "seconds": seconds,
            "gradient": gradient.tolist(),
        }
        sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
