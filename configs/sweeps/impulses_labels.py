"""Few labels: does ImPULSeS' pretraining win where training from scratch has little to learn from?

    python -m pujax.sweep --plan=impulses_labels --workdir=ENCODERS --data_dir=FOLDER
    python -m pujax.sweep --plan=impulses_labels:encoders=ENCODERS --workdir=DIR --data_dir=FOLDER

The first command pretrains the encoders, one per seed, the second trains on them. Arguments:
data = digits (default), fashion_mnist, cifar10 or all, the same in both commands; encoders = the
folder of the first command, which a run goes on with only in the same place; metric = auc
(default), f1, accuracy (another metric reads the same runs).

About one example in ten is positive. Images and labels are taken by file order: they are the same
for every seed, the images also for every number of labels, and fewer labels are among more. So a
deviation is that of training, not of the draw of labels.

A number of labels has three rows: a linear head on the frozen encoder, the whole network from the
encoder on, and the whole network from scratch, all with imbalanced nnPU at the true prior. Every
batch has labelled positives (where labels are fewer than these, some repeat); batches that mix P
and U would often have none. The encoder learns without labels, so that one serves all numbers of
labels: a ResNet-18 of a quarter of the width, whose features are average-pooled. Its epochs come on
top of the others. The frozen row trains without random views.

The published rate 0.0003 is that of the whole network; 0.003, that of the head, was chosen by the
PU risk with 150 labels on 64 features of a smaller network (docs/results/impulses.md).
"""

import os

import ml_collections

from pujax import sweep
from pujax.configs import common, impulses

# Positives and negatives in the training set; numbers of labels; size of batches; epochs of the
# encoder, of the head, of the whole network. Fashion-MNIST and CIFAR-10 are as small as three seeds
# on two CPU cores demand: about one hour of a core each, and two and a quarter.
_DATA = {
    "digits": ((80, 690), (5, 10, 20, 40), 64, (300, 100, 100)),
    "fashion_mnist": ((300, 2700), (20, 50, 150), 64, (60, 100, 20)),
    "cifar10": ((750, 7500), (20, 50, 150), 128, (60, 100, 15)),
}
_ENCODER = "encoder"
_SHARE_OF_P = 8  # a batch of 8 n has n labelled positives


def get_plan(argument: str = "") -> sweep.Plan:
    """The encoders, or the three rows for every number of labels."""
    chosen = common.parse(
        argument, encoders=None, data=(*_DATA, "all"), metric=("auc", "f1", "accuracy")
    )
    names = _DATA if chosen["data"] == "all" else (chosen["data"],)
    if not chosen["encoders"]:
        cells = [sweep.Cell(_ENCODER, name, _encoder(name)) for name in names]
        return sweep.Plan("ImPULSeS, encoders for few labels", cells, metric=chosen["metric"])
    cells = []
    for name in names:
        for number in _DATA[name][1]:
            column = f"{name}, {number} labels"
            rows = _rows(name, number, chosen["encoders"])
            cells += [sweep.Cell(row, column, config) for row, config in rows.items()]
    also = [metric for metric in ("auc", "f1", "accuracy") if metric != chosen["metric"]]
    title = "ImPULSeS with few labels"
    return sweep.Plan(title, cells, metric=chosen["metric"], also=also, reference="from scratch")


def _rows(name: str, number: int, encoders: str) -> dict[str, ml_collections.ConfigDict]:
    """The three ways to train with so many labels."""
    *_, batch_size, (_, head_epochs, whole_epochs) = _DATA[name]
    place = sweep.Cell(_ENCODER, name, ml_collections.ConfigDict()).folder
    encoder = os.path.join(encoders, place, "seed_{seed}")
    shared = {
        "pretrain_epochs": 0,
        "batching": "separate",
        "head_batch_size": batch_size,
        "positives_per_batch": batch_size // _SHARE_OF_P,
    }
    head = shared | {"num_epochs": head_epochs, "head_learning_rate": 0.003}
    whole = shared | {"num_epochs": whole_epochs, "head": "finetune"}
    rows = {"frozen encoder": head, "fine-tuned encoder": whole, "from scratch": whole}
    result = {}
    for row, fields in rows.items():
        result[row] = config = _base(name)
        config.data.num_labeled = number
        config.method.update(fields)
        if row != "from scratch":
            config.init_from = encoder
    return result


def _encoder(name: str) -> ml_collections.ConfigDict:
    """Pretraining alone."""
    config = _base(name)
    epochs = _DATA[name][3][0]
    config.data.num_labeled = _DATA[name][1][-1]
    config.method.update({"pretrain_epochs": epochs, "num_epochs": epochs})
    return config


def _base(name: str) -> ml_collections.ConfigDict:
    """What all rows of a data set share."""
    config = impulses.get_config(f"task={name}-imbalanced,size=32")
    config.model.name = "resnet18_v1"
    config.model.options.width = 16
    (config.data.num_positives, config.data.num_negatives), _, batch_size, _ = _DATA[name]
    config.method.batch_size = batch_size
    config.run.figures = False
    if name == "cifar10":
        # The last epoch is what counts, and its 10,000 test images cost a third of an epoch.
        config.run.eval_every = 100
    return config
