"""ImPULSeS: contrastive pretraining without labels, then an imbalanced PU head on the features.

Dorigatti and others (2022), "Robust and efficient imbalanced positive-unlabeled learning with
self-supervision", and its released code. Two things happen in turn:
- an encoder with a projection learns on all training examples, labels unused, to tell two random
  views of an example from views of others; the loss is corrected for others of the same class
  (`pujax.contrastive`, temperature 0.5, tau_plus 0.1). `tau_plus=0` is SimCLR's loss;
- the projection is dropped, the encoder frozen, its features of all examples computed once without
  random views, and a linear classifier trained on them with imbalanced nnPU. `head='finetune'`
  trains the whole network on images instead.
Paper and code disagree in places (500 epochs of pretraining or 100; blur and solarisation or not);
the defaults are the code's, with four exceptions: batches of the head are shuffled anew every
epoch (`faithful=True` repeats those of the first, which the code does by accident), images keep
their size (the code resizes them to 224 pixels: `model.image_size=224`) and are standardised (the
code leaves them in [0, 1]: `data.scaling='unit'`), and the rate of a linear head follows the number
of its features (`head_rate`), which is the code's for an encoder as wide as theirs.
`configs/impulses.py` has the code's size and scaling.

Stages come apart too: `pretrain_epochs=0` with `init_from` trains a head on a saved encoder, and
`num_epochs=pretrain_epochs` leaves the encoder alone. While it is pretrained, a linear probe on its
features without gradient to it follows the head's loss, so that every epoch has scores to show.

A table of numbers has no crops and colours. Its random views replace each feature, with
probability `corruption`, by that of another row of the batch, which is not the paper's but SCARF's
(Bahri and others, 2022).
"""

from collections.abc import Callable

import jax
import ml_collections
from ml_collections import config_dict

from pujax import checks, risks
from pujax.data.batching import Batch
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods import imbalanced_nnpu, nnpu
from pujax.methods._common import calibration, sections
from pujax.methods._common import classifier as classifier_lib
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods._common import views as views_lib
from pujax.methods.base import Method, Stage
from pujax.methods.impulses import head_rate, pretraining
from pujax.methods.impulses.pretraining import State
from pujax.models import encoder as encoder_lib

COMPARES_VIEWS = True
STAGE_LENGTHS = ("pretrain_epochs",)
_PN_LOSSES = ("bce", "weighted_bce")
_HEAD_LOSSES = ("imbalanced_nnpu", "nnpu", *_PN_LOSSES)


def default_config() -> ml_collections.ConfigDict:
    """The released code's settings, but for the rate of a linear head (`head_rate`).

    `num_epochs` is the length of both stages. Fields that begin with `head_` are the second one's;
    its optimizer is otherwise the first one's, at a constant rate without weight decay where the
    head is linear.

    `head_loss`: 'imbalanced_nnpu' or 'nnpu', both on the surrogate `loss`; or with U as negatives
    'bce' and 'weighted_bce' (positives weigh n_u / n_p). `labels='true'` reveals the true classes,
    for the upper bounds of Table VI. `prior_factor` multiplies the share of positives in U that the
    loss believes in. `calibration` is that of the PU losses; 'unlabeled' is the paper's.
    `batching='separate'` gives every batch of the head labelled positives, of which joint ones hold
    none where labels are few.
    """
    config = optimizer_lib.adam_config(learning_rate=head_rate.PUBLISHED, weight_decay=0.0)
    config.update(
        {
            "name": "impulses",
            "num_epochs": 200,
            "pretrain_epochs": 100,
            "batch_size": 128,
            **pretraining.default_config(),
            "padding": 4,  # of the shifts in fine-tuning
            "head": "linear",
            "head_batch_size": 256,
            "batching": "joint",  # of the head; 'separate': so many P in every batch, the rest U
            "positives_per_batch": 0,  # 0 is the share of P in the data, at least one
            "head_learning_rate": config_dict.FieldReference(head_rate.AUTO, field_type=object),
            "head_loss": "imbalanced_nnpu",
            "labels": "pu",
            "target_prior": 0.5,
            **nnpu.risk_config(calibration="unlabeled"),
            "prior_factor": 1.0,
            "faithful": False,
        }
    )
    return config


def check(config: ml_collections.ConfigDict, info: DataInfo) -> None:
    """Raises a ValueError for settings that cannot be."""
    c = config.method
    optimizer_lib.check(c)
    pretraining.check(config, info)
    checks.between("method.pretrain_epochs", c.pretrain_epochs, 0, c.num_epochs)
    checks.one_of("method.head", c.head, ("linear", "finetune"))
    checks.one_of("method.head_loss", c.head_loss, _HEAD_LOSSES)
    checks.one_of("method.labels", c.labels, ("pu", "true"))
    checks.require(
        c.labels == "pu" or c.head_loss in _PN_LOSSES,
        "method.head_loss",
        c.head_loss,
        f"{' or '.join(map(repr, _PN_LOSSES))} while method.labels is 'true'",
    )
    checks.require(
        c.prior_factor == 1 or c.head_loss not in _PN_LOSSES,
        "method.prior_factor",
        c.prior_factor,
        f"1.0 while method.head_loss is {c.head_loss!r}, which knows no prior",
    )
    checks.at_least("method.head_batch_size", c.head_batch_size, 2)
    head_rate.check(c)
    checks.at_least("method.padding", c.padding, 0)
    checks.positive("method.prior_factor", c.prior_factor)
    checks.require(
        c.pretrain_epochs > 0 or c.head == "finetune" or bool(config.init_from),
        "method.pretrain_epochs",
        c.pretrain_epochs,
        "at least 1, unless init_from names a saved encoder or method.head is 'finetune'",
    )


def head_risk(config: ml_collections.ConfigDict, info: DataInfo) -> Callable[..., jax.Array]:
    """The head's loss `(scores, labels) -> scalar`.

    Args:
      config: the method's section.
      info: numbers of the data set; where true labels are revealed, of the revealed one.

    Raises:
      ValueError: for a setting that cannot be, or a prior that is none after `prior_factor`.
    """
    c = config
    if c.head_loss in _PN_LOSSES:
        weight = info.n_u / info.n_p if c.head_loss == "weighted_bce" else 1.0
        return lambda scores, labels: risks.weighted_bce(scores, labels, positive_weight=weight)
    calibration.require_prior(info)
    is_nnpu = c.head_loss == "nnpu"
    # What the risk reads: all but nnPU's 'auto' read one of the two.
    read = {
        "unlabeled": ("prior_unlabeled",),
        "none": ("prior",),
        "auto": ("prior", "prior_unlabeled") if is_nnpu else ("prior_unlabeled",),
    }.get(c.calibration, ())
    believed = {name: c.prior_factor * getattr(info, name) for name in read}
    if c.prior_factor != 1 and believed:
        most = c.prior_factor / max(believed.values())
        accepted = f"below {most:.4g}, where the prior reaches 1"
        checks.require(c.prior_factor < most, "method.prior_factor", c.prior_factor, accepted)
    return (nnpu if is_nnpu else imbalanced_nnpu).risk(c, info._replace(**believed))


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds ImPULSeS for a resolved configuration and a data set's numbers."""
    c = config.method
    check(config, info)
    network = network_lib.build(
        config, info, embedding_dim=c.embedding_dim, projection=c.projection
    )
    risk = head_risk(c, info)
    is_linear = c.head == "linear"
    settings = _head_settings(c, head_rate.resolved(c, network.num_features(info)))
    head_epochs = c.num_epochs - c.pretrain_epochs
    optimizer = optimizer_lib.build(settings, num_epochs=max(head_epochs, 1))

    def start(key: jax.Array, previous: State | None, data: TrainingData) -> State:
        """A fresh classifier on the pretrained encoder, or on the one that the run starts from."""
        params, batch_stats = network.init(key, data.inputs[:2], data.encoder)
        if previous is not None:
            params = {**previous.params, "classifier": params["classifier"]}
            batch_stats = previous.batch_stats
        trained = params["classifier"] if is_linear else params
        return State(params, batch_stats, optimizer.init(trained))

    def linear_step(state: State, batch: Batch, key: jax.Array):
        del key

        def loss_of(classifier):
            return risk(pretraining.linear(classifier, batch.inputs), batch.labeled), None

        head = state._replace(params=state.params["classifier"])
        head, loss, _ = optimizer_lib.descend(optimizer, head, loss_of, batch.stage_progress)
        return head._replace(params={**state.params, "classifier": head.params}), {"loss": loss}

    def finetune_step(state: State, batch: Batch, key: jax.Array):
        images = classifier_lib.weak_view(c, network, batch.inputs, key)

        def loss_of(params):
            outputs, batch_stats = network.train_pass(params, state.batch_stats, images)
            return risk(outputs.logits, batch.labeled), batch_stats

        state, loss, batch_stats = optimizer_lib.descend(
            optimizer, state, loss_of, batch.stage_progress
        )
        return state._replace(batch_stats=batch_stats), {"loss": loss}

    def infer(state: State, inputs: jax.Array):
        return network.infer(state.params, state.batch_stats, inputs)

    def features(state: State, inputs: jax.Array) -> jax.Array:
        return infer(state, inputs).features

    stages = []
    if c.pretrain_epochs:
        stages.append(pretraining.build(config, network, risk))
        views_lib.say_of_tables(
            info,
            "views are rows with features of other rows of the batch, SCARF's and not the paper's",
        )
    if head_epochs:
        head = Stage(
            name="head" if is_linear else "finetune",
            num_epochs=head_epochs,
            init=start,
            step=linear_step if is_linear else finetune_step,
            batching=sections.batches(settings, info, reshuffle=not c.faithful),
            encode=features if is_linear else None,
        )
        stages.append(head)
    return Method(
        stages=tuple(stages),
        predict=lambda state, inputs: infer(state, inputs).logits,
        embed=features,
        encoder=lambda state: encoder_lib.of(state.params, state.batch_stats),
        reveals="all" if c.labels == "true" else "",
    )


def _head_settings(config: ml_collections.ConfigDict, rate: float) -> ml_collections.ConfigDict:
    """The section as the head is trained by; a linear one has Adam at a constant learning rate."""
    settings = ml_collections.ConfigDict(config.to_dict())
    settings.update({"learning_rate": rate, "batch_size": config.head_batch_size})
    sections.check_batches(settings)
    if config.head_loss in _PN_LOSSES:
        sections.require_joint(config)
    if config.head == "linear":
        settings.update({"optimizer": "adam", "lr_schedule": "constant"})
        settings.update({"lr_warmup": 0.0, "weight_decay": 0.0})
    return settings
