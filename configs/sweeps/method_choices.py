"""What the specifications of four methods leave open, compared without a negative label.

    python -m pujax.sweep --plan=configs/sweeps/method_choices.py --workdir=DIR \
        --data_dir=mnist=FOLDER,mushrooms=FOLDER

Arguments: method = all (default), cvir, robust_pu, holistic_pu or lbe; network = mlp (default, one
layer of 100), or, on the digits alone, small_cnn or deep, a perceptron with four layers of 300;
with deep, Robust-PU has Fashion-MNIST beside the digits (and needs `fashion_mnist=FOLDER`).

The criterion is the proxy accuracy of held-out P and U at the last epoch (`val_proxy_accuracy` in
the last line of a seed's `metrics.jsonl`), its mean over three sets and three seeds. Candidates of
a method are in order: first what its specification says, then what departs further and further from
it. The first one whose mean is within one standard error of the best is the default; the standard
error is that of the differences from the best, over the nine pairs of set and seed. Robust-PU's
default is the first near the best of five problems, those of 'deep' among them, and the defaults of
CVIR and LBE have the highest mean with a larger network among the problems, see the page. Test
accuracy stands in the table of the sweep and has no say. docs/results/other_methods.md has the
result.

The network is a perceptron with one layer of 100, that of the specifications of Robust-PU and LBE
for sets of this size. MNIST has 3,000 images of either side, Fashion-MNIST 5,000. A tenth to a
fifth of the examples is held out.
"""

from typing import Any

import ml_collections

from pujax import sweep
from pujax.configs import baseline, common

SETS = ("digits", "mushrooms", "mnist")
# Sets of the network 'deep', where they are not the digits alone: Robust-PU's former default failed
# on Fashion-MNIST.
DEEP_SETS = {"robust_pu": ("digits", "fashion_mnist")}
_HELD_OUT = {"digits": 200, "mushrooms": 1000, "mnist": 1000, "fashion_mnist": 1000}
_OF_EITHER_SIDE = {"mnist": 3000, "fashion_mnist": 5000}


def _episodes(count: int, length: int, rate: float, **changes: Any) -> dict[str, Any]:
    """Settings of Robust-PU after its 100 epochs of nnPU."""
    lengths = {"num_epochs": 100 + count * length, "episode_epochs": length}
    return {**lengths, "learning_rate": rate, "pretrain_selection": "last", **changes}


def _rounds(passes: int, decay: float, **changes: Any) -> dict[str, Any]:
    """Settings of LBE: passes of the pretraining, all of them, then 20 rounds."""
    lengths = {"pretrain_epochs": passes, "num_epochs": passes + 20, "weight_decay": decay}
    return {**lengths, "pretrain_selection": "last", **changes}


_CODE = {
    "unlabeled_temperature": 1.0,
    "positive_tolerance": 0.1,
    "positive_tolerance_end": 2.0,
    "unlabeled_tolerance": 0.1,
    "unlabeled_tolerance_end": 2.0,
    "tolerance_episodes": 10,
}
# Of Robust-PU: the epoch of nnPU that the authors choose by true labels, by rules without them.
_FIRST_STAGES = {
    "nnPU by proxy accuracy": {"pretrain_selection": "proxy_accuracy"},
    "nnPU by its risk": {"pretrain_selection": "nnpu_risk"},
    "nnPU by the VPU risk": {"pretrain_selection": "vpu_risk"},
    "nnPU at rate 0.0001": {"pretrain_learning_rate": 1e-4},
}
# By method: candidates by label, from the specification outward.
CANDIDATES: dict[str, dict[str, dict[str, Any]]] = {
    "cvir": {
        "rate 0.05, warm-up of 20": {"learning_rate": 0.05, "warmup_epochs": 20},
        "rate 0.1, no warm-up": {"learning_rate": 0.1, "warmup_epochs": 0},
        "rate 0.05, warm-up of 5": {"learning_rate": 0.05, "warmup_epochs": 5},
        "rate 0.01, warm-up of 20": {"learning_rate": 0.01, "warmup_epochs": 20},
        "rate 0.01, warm-up of 5": {"learning_rate": 0.01, "warmup_epochs": 5},
    },
    "robust_pu": {
        "20 episodes of 5, rate 0.001": _episodes(20, 5, 1e-3),
        "100 episodes of 1, rate 0.0001, the code's tolerances": _episodes(100, 1, 1e-4, **_CODE),
        "5 episodes of 20, rate 0.01": _episodes(5, 20, 1e-2),
        "10 episodes of 5, rate 0.001": _episodes(10, 5, 1e-3),
        "5 episodes of 5, rate 0.001": _episodes(5, 5, 1e-3),
        "5 episodes of 5, rate 0.01": _episodes(5, 5, 1e-2),
        **{
            f"5 episodes of {length}, rate {rate}, {label}": _episodes(5, length, rate, **changes)
            for length, rate in ((20, 1e-2), (5, 1e-3))
            for label, changes in _FIRST_STAGES.items()
        },
    },
    "holistic_pu": {
        "512 steps, average 0.999": {"steps_per_epoch": 512, "teacher_decay": 0.999},
        "one pass, average 0.999": {"steps_per_epoch": 0, "teacher_decay": 0.999},
        "100 steps, average 0.99": {"steps_per_epoch": 100, "teacher_decay": 0.99},
        "one pass, average 0.99": {"steps_per_epoch": 0, "teacher_decay": 0.99},
        "one pass, average 0.9": {"steps_per_epoch": 0, "teacher_decay": 0.9},
    },
    "lbe": {
        "100 passes, decay 0.01": _rounds(100, 1e-2),
        "100 passes, decay 0.0001": _rounds(100, 1e-4),
        "100 passes, propensity from one half": _rounds(100, 1e-4, propensity_start="half"),
        "30 passes, decay 0.01": _rounds(30, 1e-2),
        "30 passes, decay 0.0001": _rounds(30, 1e-4),
        "100 passes, P kept": _rounds(100, 1e-4, keep_positives=True),
        "100 passes, P kept, propensity unweighted": _rounds(
            100, 1e-4, keep_positives=True, propensity_start="unweighted"
        ),
        "pass of the least VPU risk": _rounds(100, 1e-4, pretrain_selection="vpu_risk"),
        "pass of the least VPU risk, P kept": _rounds(
            100, 1e-4, pretrain_selection="vpu_risk", keep_positives=True
        ),
    },
}


def get_plan(argument: str = "") -> sweep.Plan:
    """Every candidate of all four methods, or of one, on the sets of the network."""
    chosen = common.parse(
        argument, method=("all", *CANDIDATES), network=("mlp", "small_cnn", "deep")
    )
    names = tuple(CANDIDATES) if chosen["method"] == "all" else (chosen["method"],)
    network = chosen["network"]
    cells = [
        sweep.Cell(f"{name}: {label}", task, _config(name, task, changes, network))
        for name in names
        for task in _sets(name, network)
        for label, changes in CANDIDATES[name].items()
    ]
    rules = ("proxy_accuracy", "nnpu_risk", "last")
    return sweep.Plan("Candidates", cells, seeds=(0, 1, 2), rules=rules)


def _sets(method: str, network: str) -> tuple[str, ...]:
    if network == "mlp":
        return SETS
    return DEEP_SETS.get(method, ("digits",)) if network == "deep" else ("digits",)


def _config(
    method: str, task: str, changes: dict[str, Any], network: str
) -> ml_collections.ConfigDict:
    """A candidate on one set, with a part held out."""
    backbone = "small_cnn" if network == "small_cnn" else "mlp"
    config = baseline.get_config(f"method={method},task={task},backbone={backbone}")
    if network == "mlp":
        config.model.options.hidden = (100,)
    config.data.num_validation = _HELD_OUT[task]
    if task in _OF_EITHER_SIDE:
        config.data.num_positives = config.data.num_negatives = _OF_EITHER_SIDE[task]
    config.method.update(changes)
    config.run.update({"figures": False, "eval_every": 5})
    return config
