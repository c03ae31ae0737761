"""ImPULSeS' experiments, and the rows of its tables that it is compared with.

    python train.py --config=configs/impulses.py:size=32 --config.data.dir=FOLDER

Arguments:
- task = cifar10-imbalanced (default: 600 labelled of 3,000 positives, 30,000 negatives),
  cifar10-balanced (4,000 of 20,000), cifar100-imbalanced (vehicles: 1,000 labelled of 5,000,
  45,000 negatives), fashion_mnist-imbalanced (600 of 3,000, 30,000 negatives; not the paper's),
  digits-imbalanced (a stand-in without a download);
- size = 224 (default: the paper's ResNet-50, images resized), 32 (images as they are, ResNet-50
  with a 3x3 stem), small (a residual net of 78,000 parameters, for CPUs), plain (GradPU's 13-layer
  net without batch norm, which GradPU can start from);
- row = impulses (default), or of a table: simclr and debiased (III: U taken for negatives),
  contrastive_nnpu, contrastive_imbnnpu and debiased_nnpu (V), debiased_wbce, supervised_wbce (VI:
  upper bounds that see the true labels), imbnnpu (from scratch).

The head of every row but the last two trains on frozen features. `--config.init_from=RUNDIR` with
`--config.method.pretrain_epochs=0 --config.method.num_epochs=100` trains it on the encoder that
another run left, of this data set or another (Table IV). Other ratios: `data.num_positives`,
`data.num_negatives`, `data.num_labeled`.
"""

import ml_collections

from pujax.configs import common
from pujax.training import config as config_lib

TASKS = (
    *("cifar10-imbalanced", "cifar10-balanced", "cifar100-imbalanced"),
    *("fashion_mnist-imbalanced", "digits-imbalanced"),
)
_ROWS = {
    "impulses": {},
    "simclr": {"tau_plus": 0.0, "head_loss": "bce"},
    "debiased": {"head_loss": "bce"},
    "contrastive_nnpu": {"tau_plus": 0.0, "head_loss": "nnpu"},
    "contrastive_imbnnpu": {"tau_plus": 0.0},
    "debiased_nnpu": {"head_loss": "nnpu"},
    "debiased_wbce": {"head_loss": "weighted_bce", "labels": "true"},
    "imbnnpu": {"pretrain_epochs": 0, "head": "finetune"},
    "supervised_wbce": {
        "pretrain_epochs": 0,
        "head": "finetune",
        "head_loss": "weighted_bce",
        "labels": "true",
    },
}


def get_config(argument: str = "") -> ml_collections.ConfigDict:
    """The configuration of one task, size and row."""
    chosen = common.parse(
        argument, task=TASKS, size=("224", "32", "small", "plain"), row=tuple(_ROWS)
    )
    config = config_lib.default_config("impulses")
    common.set_task(config, chosen["task"])
    config.data.scaling = "unit"
    config.method.update(_ROWS[chosen["row"]])
    if not config.method.pretrain_epochs:
        config.method.num_epochs = 100
    if chosen["size"] == "small":
        config.model.name = "resnet_small"
    elif chosen["size"] == "plain":
        config.model.name = "cnn13"
        plain = {"batch_norm": False, "initializer": "he_normal"}
        config.model.options = ml_collections.ConfigDict(plain)
    else:
        stem = "imagenet" if chosen["size"] == "224" else "cifar"
        config.model.name = "resnet50_v1"
        config.model.options = ml_collections.ConfigDict({"stem": stem})
        config.model.image_size = 224 if chosen["size"] == "224" else 0
    if chosen["task"] == "digits-imbalanced":
        config.method.batch_size = 64
    if chosen["task"] == "fashion_mnist-imbalanced":
        config.method.update({"padding": 2})
    config.run.eval_every = 10
    return config
