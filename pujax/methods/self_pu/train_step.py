"""Training step of Self-PU: two students, their teachers, and what they learn from whom."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import optax

from pujax import risks
from pujax.arrays import mean_where
from pujax.data.batching import Batch
from pujax.methods._common import classifier
from pujax.methods._common import losses as losses_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods._common.network import Network
from pujax.methods.base import Metrics
from pujax.methods.self_pu import self_paced


class Student(NamedTuple):
    """A trained network and what it trains on.

    Attributes:
      params: network parameters.
      batch_stats: running batch-norm statistics.
      opt_state: optimizer state.
      pool: int8 `[n]`, see `self_paced`.
      noisy: priors and weight of the noisy set's risk, float32 scalars, see `calibration`.
    """

    params: Any
    batch_stats: Any
    opt_state: Any
    pool: jax.Array
    noisy: dict[str, jax.Array]


class Teacher(NamedTuple):
    """A moving average of a student; its batch-norm statistics are those of its own passes."""

    params: Any
    batch_stats: Any


class State(NamedTuple):
    """Everything that training changes.

    Attributes:
      students: two.
      teachers: two, or None before they start.
      updates: int32 scalar, steps that the teachers have followed.
    """

    students: tuple[Student, ...]
    teachers: tuple[Teacher, ...] | None
    updates: jax.Array


def build_step(
    config: ml_collections.ConfigDict,
    network: Network,
    optimizer: optimizer_lib.Optimizer,
    *,
    calibrated: bool,
    taught: bool,
) -> Callable[[State, Batch, jax.Array], tuple[State, Metrics]]:
    """The step of a stage.

    Args:
      config: the method's section.
      network: of students and teachers.
      optimizer: of the students; its epochs are those of the whole training.
      calibrated: whether the weights of noisy examples are learned; batches then have support.
      taught: whether there are teachers.

    Returns:
      `(state, batch, key) -> (state, metrics)`; metrics are means over the students.
    """

    def step(state: State, batch: Batch, key: jax.Array) -> tuple[State, Metrics]:
        images = classifier.weak_view(config, network, batch.inputs, key)
        students, teachers = state.students, state.teachers
        if calibrated:
            weights = [learned_weights(config, network, s, images, batch) for s in students]
        else:
            weights = [jnp.tile(jnp.asarray([1.0, 0.0]), (images.shape[0], 1))] * 2
        lessons, lesson_stats = [None, None], []
        if taught:
            assert teachers is not None
            lessons, lesson_stats = _passes(network, [t.params for t in teachers], teachers, images)

        def loss_of(params):
            scores, stats = _passes(network, params, students, images)
            parts = [
                losses(config, student, batch, weights[i], scores[i], scores[1 - i], lessons[i])
                for i, student in enumerate(students)
            ]
            return parts[0]["loss"] + parts[1]["loss"], (stats, parts)

        before = [s.params for s in students]
        gradients, (stats, parts) = jax.grad(loss_of, has_aux=True)(before)
        moved = []
        for student, gradient, batch_stats in zip(students, gradients, stats, strict=True):
            student = optimizer_lib.apply(optimizer, student, gradient, batch.progress)
            moved.append(student._replace(batch_stats=batch_stats))
        state = state._replace(students=tuple(moved))
        if taught:
            assert teachers is not None
            decay = self_paced.teacher_decay(state.updates, decay=config.teacher_decay)
            followed = (
                # The step size is the teacher's share: 1 - (1 - decay) would be rounded.
                Teacher(
                    optax.incremental_update(teacher.params, student.params, decay), batch_stats
                )
                for teacher, student, batch_stats in zip(teachers, moved, lesson_stats, strict=True)
            )
            state = state._replace(teachers=tuple(followed), updates=state.updates + 1)
        return state, jax.tree.map(lambda first, second: (first + second) / 2, *parts)

    return step


def learned_weights(
    config: ml_collections.ConfigDict,
    network: Network,
    student: Student,
    images: jax.Array,
    batch: Batch,
) -> jax.Array:
    """Weights `[batch, 2]` that a virtual step of a student's clone finds on the support batch.

    The clone is in training mode, as in the authors' code, and its statistics are dropped.
    """
    rows = student.pool[batch.ids] == self_paced.NOISY
    assert batch.support_inputs is not None and batch.support_labels is not None
    support = network.normalize(batch.support_inputs)

    def noisy_loss(params, weights):
        scores = network.train_pass(params, student.batch_stats, images)[0].logits
        return sum(_noisy_terms(config, student, batch, weights, scores, rows))

    def support_loss(params):
        scores = network.train_pass(params, student.batch_stats, support)[0].logits
        if config.meta_loss == "entropy":
            return jnp.mean(losses_lib.entropy(scores))
        return jnp.mean(risks.logistic_loss((2 * batch.support_labels - 1) * scores))

    return self_paced.calibrated_weights(
        noisy_loss,
        support_loss,
        student.params,
        adjustable=rows & (batch.labeled == 0),
        trainable=network.is_trainable,
        learning_rate=config.meta_learning_rate,
        budget=config.entropy_budget * jnp.sum(rows),
    )


def losses(
    config: ml_collections.ConfigDict,
    student: Student,
    batch: Batch,
    weights: jax.Array,
    scores: jax.Array,
    peer_scores: jax.Array,
    teacher_scores: jax.Array | None,
) -> Metrics:
    """All losses of one student on a batch.

    Args:
      config: the method's section.
      student: the student.
      batch: the batch.
      weights: `[batch, 2]`, see `self_paced.noisy_terms`.
      scores: `[batch]`, its own.
      peer_scores: `[batch]`, those of the other student.
      teacher_scores: `[batch]`; None leaves the distillation out.

    Returns:
      Scalars by name. In `loss`, noisy and clean rows weigh by their number; the distance to the
      peer counts while it is below `mutual_alpha` times the value of the risk.
    """
    pool = student.pool[batch.ids]
    rows = pool == self_paced.NOISY
    noisy_share = jnp.mean(rows.astype(scores.dtype))
    risk, own = _noisy_terms(config, student, batch, weights, scores, rows)
    if config.soft_label:
        each = losses_lib.entropy(scores)
    else:
        each = risks.logistic_loss(jnp.where(pool == self_paced.POSITIVE, scores, -scores))
    clean = jnp.mean(jnp.where(rows, 0, each))
    mutual = consistency = jnp.zeros([])
    if teacher_scores is not None:
        probability = jax.nn.sigmoid(scores)
        others = jax.lax.stop_gradient(jax.nn.sigmoid(jnp.stack([peer_scores, teacher_scores])))
        to_peer, to_teacher = jnp.square(probability - others)
        mutual = mean_where(to_peer, rows)
        mutual = jnp.where(mutual < config.mutual_alpha * risk, mutual, 0)
        weight = self_paced.ramp(
            batch.epoch,
            weight=config.consistency_weight,
            num_epochs=config.consistency_ramp_epochs,
        )
        consistency = weight * jnp.mean(to_teacher)
    return {
        "loss": noisy_share * (risk + own + mutual) + clean + consistency,
        "loss_risk": risk,
        "loss_entropy": own,
        "loss_clean": clean,
        "loss_mutual": mutual,
        "loss_consistency": consistency,
        "clean_share": 1 - noisy_share,
    }


def _passes(network, params, networks, images):
    """Training-mode scores of several networks, and their statistics afterwards."""
    passes = [
        network.train_pass(p, n.batch_stats, images) for p, n in zip(params, networks, strict=True)
    ]
    return [outputs.logits for outputs, _ in passes], [stats for _, stats in passes]


def _noisy_terms(config, student, batch, weights, scores, rows):
    """nnPU and entropy of the noisy rows under the configured rule."""
    return self_paced.noisy_terms(
        scores,
        batch.labeled,
        weights,
        rows=rows,
        loss=losses_lib.surrogate(config.loss),
        beta=config.beta,
        gamma=config.gamma,
        ascent=config.ascent,
        **student.noisy,
    )
