"""What follows the length of a run: rate, warm-up and momenta, where a field says 'auto'.

The published runs are 1,300 epochs long. In a run of another length 'auto' is

- of `warmup_epochs` the same share of the epochs, 30 of 1,300, but at least one epoch, since
  prototypes start as zeros and would call everything positive, and one less than there are;
- of `label_momentum`, which is applied once per epoch, 1 - 0.01 * 1300 / num_epochs, and 0 in runs
  below 13 epochs: labels turn after the same share of the run;
- of `learning_rate` the published 0.001 where the warm-up has 600 steps or more, 0.01 where it has
  150 or less, and between them a power of the steps;
- of `target_momentum` and `threshold_momentum`, applied once per step, and `prototype_momentum`,
  applied once per example, the published 0.99 but in runs of less than 459 updates
  (`alignment.paced`).

At the published length, and with the warm-up that follows it, these are the published numbers.

Why the rate follows: after the warm-up all that is predicted in one class is pulled together, and
the entropy makes every prediction certain. A classifier that has learnt nothing by then puts all
examples into one class, and they stay there. The published warm-up has 4,800 steps; that of a set
of 1,300 examples has 150, in which nothing is learnt at 0.001, and too little at 0.0067.
"""

import math

import ml_collections

from pujax import checks
from pujax.methods._common import alignment

AUTO = alignment.AUTO
EPOCHS = 1300
"""Of the published runs."""
_WARMUP_EPOCHS = 30
_PUBLISHED_RATE = 1e-3
"""Of CIFAR-10 and CIFAR-100."""
_MAX_RATE = 1e-2
"""The authors' largest, that of STL-10."""
_ENOUGH_STEPS, _FEW_STEPS = 600, 150
"""Steps of a warm-up from and up to which the two rates were measured to do."""


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for a rate, a warm-up or a momentum that cannot be.

    Args:
      config: NcPU's section.
    """
    rate, warmup = config.learning_rate, config.warmup_epochs
    checks.between("method.learning_rate", rate, 0, math.inf, include="neither", word=AUTO)
    checks.between("method.warmup_epochs", warmup, 0, config.num_epochs, word=AUTO)
    is_whole = warmup == AUTO or warmup == int(warmup)
    accepted = f"{AUTO!r}, or a whole number of epochs"
    checks.require(is_whole, "method.warmup_epochs", warmup, accepted)
    for name in ("target_momentum", "threshold_momentum"):
        checks.between(f"method.{name}", config[name], 0, 1, word=AUTO)
    # Labels that stay at zero leave U negative, prototypes that do call everything positive.
    for name in ("label_momentum", "prototype_momentum"):
        checks.between(f"method.{name}", config[name], 0, 1, include="low", word=AUTO)


def resolved(config: ml_collections.ConfigDict, num_examples: int) -> ml_collections.ConfigDict:
    """NcPU's section with numbers in place of 'auto'.

    Args:
      config: the section, which stays as it is.
      num_examples: of P and U in training.
    """
    steps_per_epoch = num_examples // config.batch_size
    steps = config.num_epochs * steps_per_epoch
    fields = config.to_dict()
    updates = {"threshold_momentum": steps, "prototype_momentum": steps * config.batch_size}
    for name, count in updates.items():
        fields[name] = alignment.paced(count) if config[name] == AUTO else float(config[name])
    fields["warmup_epochs"] = warmup_epochs(config)
    fields["learning_rate"] = learning_rate(config, fields["warmup_epochs"] * steps_per_epoch)
    fields["label_momentum"] = label_momentum(config)
    fields["target_momentum"] = alignment.target_momentum(config, steps)
    return ml_collections.ConfigDict(fields)


def warmup_epochs(config: ml_collections.ConfigDict) -> int:
    """Epochs in which labels stay and only the two views of one example are a pair."""
    if config.warmup_epochs != AUTO:
        return int(config.warmup_epochs)
    share = round(_WARMUP_EPOCHS * config.num_epochs / EPOCHS)
    return min(max(share, 1), config.num_epochs - 1)


def learning_rate(config: ml_collections.ConfigDict, warmup_steps: int) -> float:
    """Peak rate of a run whose warm-up has so many steps."""
    if config.learning_rate != AUTO:
        return float(config.learning_rate)
    if warmup_steps >= _ENOUGH_STEPS:
        return _PUBLISHED_RATE
    if warmup_steps <= _FEW_STEPS:
        return _MAX_RATE
    power = math.log(_MAX_RATE / _PUBLISHED_RATE) / math.log(_ENOUGH_STEPS / _FEW_STEPS)
    return _PUBLISHED_RATE * (_ENOUGH_STEPS / warmup_steps) ** power


def label_momentum(config: ml_collections.ConfigDict) -> float:
    """Share of a stored label that stays in an epoch."""
    if config.label_momentum != AUTO:
        return float(config.label_momentum)
    return max(1 - (1 - alignment.PUBLISHED_MOMENTUM) * EPOCHS / config.num_epochs, 0.0)


def epochs_to_turn(momentum: float) -> int:
    """Epochs after the warm-up until a stored label of 0 can pass one half."""
    return math.ceil(math.log(0.5) / math.log(momentum)) if momentum > 0 else 1


def epochs_needed(config: ml_collections.ConfigDict) -> int:
    """The length from which stored labels can pass one half, at least that of the run.

    Warm-up and momentum may follow the length. What a run of so many epochs needs never falls with
    its length, so that asking anew for the length that was found needed comes to the smallest one
    that is enough.

    Args:
      config: NcPU's section.
    """
    longer = ml_collections.ConfigDict(config.to_dict())
    while True:
        needed = warmup_epochs(longer) + epochs_to_turn(label_momentum(longer))
        if needed <= longer.num_epochs:
            return longer.num_epochs
        longer.num_epochs = needed
