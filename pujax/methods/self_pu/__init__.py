"""Self-PU: self-paced picking, calibrated weights and self-distillation (Chen et al., ICML 2020).

Two students start as nnPU classifiers. From `pick_start` on each has a clean set of its own: the
unlabeled examples it is surest of, with pseudo labels, and some labelled positives; the rest is its
noisy set, trained with nnPU and the prior that is left. While picking, every noisy unlabeled
example gets two weights, of nnPU and of the entropy of its own prediction, learned by one virtual
step and a loss on clean data. From `teacher_start` on the students learn from each other and from
averages of themselves. What differs from the authors' code, and why:
- Their clean data and their choice of the best of four networks are the test set's. Here the clean
  data are the support set's, and `report` names the network; expect lower figures.
- Clean and noisy rows share a batch, which keeps the order of the data simple, and weigh by their
  number, as separate batches of one size would. A batch holds P and U in the ratio of the data, of
  which the noisy rows keep the ratio of the noisy set on average and not exactly: with 4 of P in
  a batch and half of P in the clean set, one batch in 16 has no noisy positive.
- Examples are picked before epoch `pick_start` and every `pick_every` epochs from there; the code
  picks after such an epoch.
- Half of P joins the clean set (`clean_labeled`), as in the code's modes that pick one class; its
  default mode leaves all of P in the noisy set (0).
- The prior of the noisy set follows the pool; the code has the formula but always passes it a
  pool of 0.
- The virtual step lowers the entropies that the real step lowers; the code's sign is the opposite.
- The consistency of student and teacher compares sigmoid probabilities; the code's softmax over its
  single output is always 1, and the loss 0.
- Teachers move after every step; the code's move twice an epoch.
- The mutual term counts below `mutual_alpha` times the value of the risk; the code compares it with
  what it descends on, which where nnPU corrects a step is another number.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from pujax import checks
from pujax.data import batching as batching_lib
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods import nnpu
from pujax.methods._common import calibration, losses, sections
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods.base import Method, Stage
from pujax.methods.self_pu import self_paced, train_step
from pujax.methods.self_pu.train_step import State, Student, Teacher

OWN_ROWS = {"calibration_meta": False}
"""Weights are learned on clean examples, which most own rows lack."""
STAGE_LENGTHS = ("pick_start", "pick_stop", "teacher_start")
_REPORTS = ("student_1", "student_2", "teacher_1", "teacher_2")


def default_config() -> ml_collections.ConfigDict:
    """The published settings; without a support set set `calibration_meta` to False.

    `meta_loss` 'entropy' looks at support inputs only, as published; 'cross_entropy' at their
    labels. `soft_label` trains the clean set on its own entropy instead of its pseudo labels, as
    the authors' later commands do (`configs/self_pu.py`).
    `report` is the network that predicts; before there are teachers, the student of its number
    does. The first picks less and is surer; the authors take whichever is best on the test set.
    """
    return sections.baseline_config(
        "self_pu",
        num_epochs=200,
        learning_rate=5e-4,
        lr_schedule="cosine",
        lr_floor=0.0,
        batching="separate",
        **nnpu.risk_config(),
        # Self-paced picking.
        pick_start=10,
        pick_stop=50,  # the last epoch is the one before
        pick_every=10,
        pick_ramp_epochs=100,
        pick_share=0.5,
        pick_top_1=0.4,
        pick_top_2=0.6,
        clean_labeled=0.5,
        soft_label=False,
        # Self-calibration, while examples are picked.
        calibration_meta=True,
        support_batch_size=0,  # 0: as the batch, or all support examples if they are fewer
        meta_loss="entropy",
        meta_learning_rate=1e-3,
        entropy_budget=1 / 16,
        # Self-distillation.
        teacher_start=50,
        mutual_alpha=0.1,
        consistency_weight=0.3,
        consistency_ramp_epochs=400,
        teacher_decay=0.999,
        report="teacher_1",
    )


def check(config: ml_collections.ConfigDict, info: DataInfo) -> None:
    """Raises a ValueError for settings that cannot be."""
    c = config
    sections.check(c)
    losses.surrogate(c.loss)
    calibration.require_prior(info)
    for name in ("beta", "gamma", "mutual_alpha", "consistency_weight", "entropy_budget"):
        checks.at_least(f"method.{name}", c[name], 0)
    checks.between("method.pick_start", c.pick_start, 0, c.num_epochs)
    checks.between("method.pick_stop", c.pick_stop, c.pick_start, c.num_epochs)
    checks.between("method.teacher_start", c.teacher_start, 0, c.num_epochs)
    for name in ("pick_every", "pick_ramp_epochs", "consistency_ramp_epochs"):
        checks.at_least(f"method.{name}", c[name], 1)
    for name in ("pick_share", "pick_top_1", "pick_top_2", "teacher_decay"):
        checks.between(f"method.{name}", c[name], 0, 1)
    checks.between("method.clean_labeled", c.clean_labeled, 0, 1, include="low")
    checks.one_of("method.report", c.report, _REPORTS)
    most = max((count for counts in _pick_counts(c, info) for count in counts), default=0)
    room = min(info.prior, info.prior_unlabeled, 1 - info.prior, 1 - info.prior_unlabeled)
    checks.require(
        most < room * info.n_u,
        "method.pick_share",
        c.pick_share,
        f"a share that picks fewer than {room * info.n_u:.0f} examples as positive and as negative "
        f"(this one picks {most}), so that the noisy set keeps both classes",
    )
    if c.calibration_meta:
        checks.one_of("method.meta_loss", c.meta_loss, ("entropy", "cross_entropy"))
        checks.positive("method.meta_learning_rate", c.meta_learning_rate)
        checks.require(
            info.n_support > 0,
            "data.num_support",
            info.n_support,
            "at least 1 while method.calibration_meta is True",
        )
        checks.between("method.support_batch_size", c.support_batch_size, 0, info.n_support)


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds Self-PU."""
    c = config.method
    check(c, info)
    network = network_lib.build(config, info, embedding_dim=0)
    training = _Training(c, info, network, optimizer_lib.build(c, num_epochs=c.num_epochs))
    refresh = _refresh(config, info, network)

    def outputs(state: State, inputs: jax.Array):
        chosen = _reported(c, state)
        return network.infer(chosen.params, chosen.batch_stats, inputs)

    borders = sorted({0, c.pick_start, c.pick_stop, c.teacher_start, c.num_epochs})
    return Method(
        stages=tuple(_stage(training, refresh, *ends) for ends in itertools.pairwise(borders)),
        predict=lambda state, inputs: outputs(state, inputs).logits,
        embed=lambda state, inputs: outputs(state, inputs).features,
    )


class _Training(NamedTuple):
    """The first states of all stages.

    Attributes:
      config: the method's section.
      info: numbers of the data set.
      network: of students and teachers.
      optimizer: of the students.
    """

    config: ml_collections.ConfigDict
    info: DataInfo
    network: network_lib.Network
    optimizer: optimizer_lib.Optimizer

    def init(
        self, key: jax.Array, previous: State | None, data: TrainingData, *, taught: bool
    ) -> State:
        """Two fresh students, or the state of the stage before; teachers where they begin."""
        if previous is None:
            first, second = jax.random.split(key)
            students = self._student(first, data), self._student(second, data)
            previous = State(students, None, jnp.zeros([], jnp.int32))
        if previous.teachers is not None or not taught:
            return previous
        # Copies: a training step gives its buffers back, and may not do so twice.
        copies = (Teacher(*jax.tree.map(jnp.copy, s[:2])) for s in previous.students)
        return previous._replace(teachers=tuple(copies))

    def _student(self, key: jax.Array, data: TrainingData) -> Student:
        """A fresh network, for which all examples are noisy."""
        params, batch_stats = self.network.init(key, data.inputs[:2], data.encoder)
        pool = jnp.full(data.labeled.shape, self_paced.NOISY, jnp.int8)
        numbers = _noisy_numbers(self.config, self.info, picked=0, picked_labeled=0)
        return Student(params, batch_stats, self.optimizer.init(params), pool, numbers)


def _stage(training: _Training, refresh: Callable[..., State], first: int, last: int) -> Stage:
    """The epochs from `first` on, before `last`, in which nothing begins or ends."""
    c, info = training.config, training.info
    picks, taught = c.pick_start <= first < c.pick_stop, c.teacher_start <= first
    calibrated = picks and c.calibration_meta
    support = (c.support_batch_size or min(c.batch_size, info.n_support)) * calibrated
    phase = "self_paced" if picks else ("warmup" if first < c.pick_start else "settled")
    return Stage(
        name=f"{phase}_taught" if taught else phase,
        num_epochs=last - first,
        init=functools.partial(training.init, taught=taught),
        step=train_step.build_step(
            c, training.network, training.optimizer, calibrated=calibrated, taught=taught
        ),
        batching=sections.batches(c, info, support_batch_size=support),
        refresh=functools.partial(refresh, first=first - c.pick_start) if picks else None,
        # Teachers may start between two epochs in which examples are picked.
        refresh_every=math.gcd(c.pick_every, first - c.pick_start) if picks else 0,
    )


def _refresh(
    config: ml_collections.ConfigDict, info: DataInfo, network: network_lib.Network
) -> Callable[..., State]:
    """What picks examples at the start of an epoch of picking, where it is time."""
    c = config.method
    counts = _pick_counts(c, info)
    count_labeled = self_paced.floor_of(c.clean_labeled * info.n_p)

    @jax.jit
    def score(params: Any, batch_stats: Any, inputs: jax.Array) -> jax.Array:
        return network.infer(params, batch_stats, inputs).logits

    def refresh(
        state: State, data: TrainingData, key: jax.Array, epoch: int = 0, *, first: int
    ) -> State:
        """New pools; `first` is the number of epochs of picking before the stage."""
        if (first + epoch) % c.pick_every:
            return state
        judges: Any = state.students if state.teachers is None else state.teachers
        students = []
        for index, (student, judge) in enumerate(zip(state.students, judges, strict=True)):
            scores = batching_lib.map_batches(
                score,
                data.inputs,
                batch_size=config.run.eval_batch_size,
                args=(judge.params, judge.batch_stats),
            )
            count = jnp.int32(counts[index][first + epoch])  # an array: noisy_info in float32
            pool = self_paced.pick(
                jax.random.fold_in(key, index),
                scores,
                data.labeled,
                count=count,
                count_labeled=count_labeled,
            )
            noisy = _noisy_numbers(c, info, picked=2 * count, picked_labeled=count_labeled)
            students.append(student._replace(pool=pool, noisy=noisy))
        return state._replace(students=tuple(students))

    return refresh


def _reported(config: ml_collections.ConfigDict, state: State) -> Student | Teacher:
    """The network that predicts: before there are teachers, the student of its number."""
    kind, number = config.report.split("_")
    teachers = None if kind == "student" else state.teachers
    return (teachers or state.students)[int(number) - 1]


def _pick_counts(config: ml_collections.ConfigDict, info: DataInfo) -> list[list[int]]:
    """For each student, how many to pick at either end in every epoch of picking."""
    return [
        [
            self_paced.pick_count(
                info.n_u,
                epoch,
                share=config.pick_share,
                ramp_epochs=config.pick_ramp_epochs,
                top=top,
            )
            for epoch in range(config.pick_start, config.pick_stop)
        ]
        for top in (config.pick_top_1, config.pick_top_2)
    ]


def _noisy_numbers(config, info, *, picked, picked_labeled) -> dict[str, jax.Array]:
    """Priors and weight of the noisy set's risk, as arrays."""
    left = self_paced.noisy_info(info, picked=picked, picked_labeled=picked_labeled)
    numbers = calibration.risk_numbers(left, config.calibration)
    return {name: jnp.asarray(value, jnp.float32) for name, value in numbers.items()}
