"""PURL: features that keep what P and U say, then a class prior, then nnPU on them.

Sakai, Niu and Sugiyama (2021), https://arxiv.org/abs/1710.05359. Three things happen in turn:
- a network w = g(v(x)) is fitted to the density ratio p(x | +1) / p(x), which maximises the
  squared-loss mutual information of v(x) and the class (`pujax.mutual_info`); see `ratio_stage`.
  The objective has no lower bound for a network that tells P from U by heart, so that some of P and
  of U is held out, and the network of the epoch that fits them best is kept;
- the share of positives in U is estimated on the features of P and U, by KM2 unless told otherwise;
- a perceptron on the features is trained with nnPU and that prior.
`representation` puts other features in place of the first part, and leaves the rest as it is:
'pnrl' is the same network with U taken for negatives, in the reduced form of its objective, with
the share of P in the data as the prior; 'pca' and 'fda' are linear, 'none' is the input. The same
number of examples is held out, so that all of them find the prior and classify on equally many.
The paper leaves open how long the first stage takes (as long as the held-out objective falls), the
size of batches, and the learning rate of the classifier.
"""

from typing import Any

import jax
import ml_collections

from pujax import checks
from pujax.data.pu_dataset import DataInfo
from pujax.methods import nnpu
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods._common import sections
from pujax.methods.base import Method
from pujax.methods.purl import class_prior, linear_maps, ratio_stage
from pujax.methods.purl.classifier_stage import ClassifierStage
from pujax.methods.purl.ratio_stage import RatioStage

SELECTION = "vpu_risk"
STAGE_LENGTHS = ("representation_epochs",)


def default_config() -> ml_collections.ConfigDict:
    """The paper's settings, and this package's where it states none.

    A learning rate of 1e-4 for the classifier lets a rule without negatives choose an epoch: at
    1e-3 its accuracy jumps by points from epoch to epoch (docs/results/defaults.md).

    `num_epochs` is the length of both stages; a representation that is not learned has the second
    one alone, `num_epochs - representation_epochs` long. The network of the configuration is that
    of the density ratio; `classifier_hidden` are the layers of the classifier, and
    `classifier_batch_size` the size of its batches (0 is `batch_size`), of which P has its share in
    the data. `calibration` is that of `calibration.risk_numbers`, applied to the estimated prior.

    `prior_points` says on what the prior is estimated:
    - 'training', as in the paper: features of the examples that they were fitted to. Every update
      sets these P further apart from the positives in U, so that the prior comes out too low.
    - 'fresh': features of the examples held out, as many as `validation_positives` and
      `validation_unlabeled` say. No update saw them; the epoch was chosen on them.
    - 'out_of_bag', whatever the representation: one number for each example, the density ratio by
      small networks that did not see it, which stop by themselves (`priors.out_of_bag`). It takes
      KM2 or best bin.
    With `standardize_rows`, KM gets standardised inputs for 'none' and for 'pca' components of
    these; the classifier gets them as they are.
    """
    config = optimizer_lib.adam_config(learning_rate=1e-4, weight_decay=0.0)
    config.update(
        {
            "name": "purl",
            "representation": "purl",
            "num_epochs": 500,
            "batch_size": 300,
            "batching": "separate",
            "positives_per_batch": 0,
            "pca_share": 0.5,
            "fda_ridge": 1e-3,
            "prior_method": "km2",
            "prior_points": "training",
            "prior_max_points": 2000,
            "standardize_rows": True,
            "classifier_hidden": (300, 300, 300),
            "classifier_batch_size": 0,
            **ratio_stage.default_config(),
            **nnpu.risk_config(),
        }
    )
    return config


def check(config: ml_collections.ConfigDict, info: DataInfo) -> None:
    """Raises a ValueError for settings that cannot be."""
    c = config.method
    optimizer_lib.check(c)
    removed = "'purl' with method.prior_points='fresh', which took the place of 'purl_held_out'"
    is_known = c.representation != "purl_held_out"
    checks.require(is_known, "method.representation", c.representation, removed)
    checks.one_of("method.representation", c.representation, linear_maps.NAMES)
    ratio_stage.check(config)
    sections.check_batches(c)
    checks.between("method.pca_share", c.pca_share, 0, 1)
    checks.positive("method.fda_ridge", c.fda_ridge)
    class_prior.check(c, info, held_out=ratio_stage.num_held_out(c, info))
    checks.require(
        c.classifier_batch_size == 0 or c.classifier_batch_size >= 2,
        "method.classifier_batch_size",
        c.classifier_batch_size,
        "0 (method.batch_size) or at least 2",
    )
    for width in c.classifier_hidden:
        checks.at_least("method.classifier_hidden", width, 1)


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds PURL for a resolved configuration and a data set's numbers."""
    c = config.method
    check(config, info)
    is_learned = c.representation in linear_maps.LEARNED
    network = network_lib.build(config, info, embedding_dim=0)
    share = info.n_p / info.n if c.representation == "pnrl" else 0.0
    ratio = RatioStage(config, info, network, positive_share=share)
    classifier = ClassifierStage(config, info, network, ratio if is_learned else None)

    def predict(state: Any, inputs: jax.Array) -> jax.Array:
        if isinstance(state, ratio_stage.State):
            # Denser under P than under U: all that can be said before the prior is known.
            return ratio.ratio(state, inputs) - 1
        return classifier.predict(state, inputs)

    def embed(state: Any, inputs: jax.Array) -> jax.Array:
        is_ratio = isinstance(state, ratio_stage.State)
        return classifier.features(state.current if is_ratio else state.features, inputs)

    def estimates(state: Any) -> dict[str, jax.Array]:
        if isinstance(state, ratio_stage.State):
            return ratio_stage.measured(state.current)
        measured = ratio.estimates(state.features, state.prior) if is_learned else {}
        return measured | {"estimated_prior": state.prior}

    return Method(
        stages=(ratio.stage, classifier.stage) if is_learned else (classifier.stage,),
        predict=predict,
        embed=embed,
        estimates=estimates,
        diagnose=ratio_stage.diagnose if is_learned else None,
    )
