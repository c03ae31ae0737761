"""The experiments that are measured, on published data where it is there, else on random images.

Random images have the published sizes: a step takes as long on them. At tiny sizes networks have a
few channels and images 8 pixels, so that all of it runs on a CPU within seconds.
"""

import functools
from typing import Any, NamedTuple

import jax
import ml_collections
import numpy as np
from jax.sharding import Mesh

from benchmarks.accelerator_parts.worker import Context
from pujax import sweep
from pujax.configs import gradpu, impulses, lagam_cifar, ncpu, pu_mlc_voc
from pujax.data import dataset, multilabel_dataset
from pujax.data.raw import RawDataset
from pujax.sweep import plan as sweep_plan
from pujax.training import config as config_lib
from pujax.training import experiment, method_setup
from pujax.training.config import data_section
from pujax.training.method_setup import MethodSetup

LAGAM, IMPULSES, PU_MLC, GRADPU, NCPU = "lagam", "impulses", "pu_mlc", "gradpu", "ncpu"

# Training and test images, shape, classes.
_SIZES = {
    LAGAM: (50000, 10000, (32, 32, 3), 10),
    IMPULSES: (50000, 10000, (32, 32, 3), 10),
    GRADPU: (60000, 10000, (28, 28, 1), 10),
    NCPU: (50000, 10000, (32, 32, 3), 10),
}
_VOC_CLASSES = 20
_SMALL_CNN = {"name": "small_cnn", "options": {"channels": (4, 8, 8), "hidden": (16,)}}
_SMALL_MLP = {"name": "mlp", "options": {"hidden": (16,)}}
_TINY_DATA = {
    LAGAM: {"num_labeled": 20, "num_support": 20},
    IMPULSES: {"num_positives": 60, "num_labeled": 12},
    GRADPU: {"num_labeled": 40, "num_validation": 20},
    PU_MLC: {"image_size": 16, "load_size": 16},
    NCPU: {"num_labeled": 20, "num_unlabeled": 200},
}
_TINY_MODEL = {
    LAGAM: _SMALL_MLP,
    IMPULSES: _SMALL_CNN | {"image_size": 0},
    GRADPU: _SMALL_MLP,
    PU_MLC: _SMALL_CNN,
    NCPU: _SMALL_MLP,
}
_TINY_METHOD = {
    LAGAM: {
        "num_epochs": 4,
        "warmup_epochs": 1,
        "lr_drops": (2, 3),
        "batch_size": 16,
        "support_batch_size": 8,
        "num_clusters": 3,
        "embedding_dim": 8,
        "augment": False,  # the random views compile longest; a part of their own measures them
    },
    IMPULSES: {
        "num_epochs": 4,
        "pretrain_epochs": 2,
        "batch_size": 16,
        "head_batch_size": 16,
        "padding": 1,
    },
    GRADPU: {"num_epochs": 2, "batch_size": 50},
    PU_MLC: {"batch_size": 8, "crop_sizes": (16,)},
    NCPU: {"num_epochs": 2, "warmup_epochs": 1, "batch_size": 16, "align_dim": 8},
}


class Problem(NamedTuple):
    """An experiment, ready to be compiled.

    Attributes:
      setup: its method and data.
      inputs: what the pixels are, one sentence.
      streamed: whether images come in batches, as from files.
    """

    setup: MethodSetup
    inputs: str
    streamed: bool


def config(network: str, *, tiny: bool, dtype: str = "float32", few_kernels: str = "auto") -> Any:
    """The configuration of an experiment.

    Args:
      network: 'lagam', 'impulses', 'pu_mlc', 'gradpu' or 'ncpu'.
      tiny: whether everything is small.
      dtype: `model.dtype`.
      few_kernels: `run.few_kernels`.
    """
    if network == NCPU:
        tree = ncpu.get_config("task=cifar10")
    else:
        make = {LAGAM: lagam_cifar, IMPULSES: impulses, PU_MLC: pu_mlc_voc, GRADPU: gradpu}
        tree = make[network].get_config()
    tree.model.dtype = dtype
    tree.run.few_kernels = few_kernels
    tree.run.update({"figures": False, "tensorboard": "off"})
    if tiny:
        tree.data.update(_TINY_DATA[network])
        tree.method.update(_TINY_METHOD[network])
        model = dict(_TINY_MODEL[network])
        tree.model.options = ml_collections.ConfigDict(model.pop("options"))
        tree.model.update(model)
        tree.run.eval_batch_size = 32
    return tree


def build(tree: Any, network: str, context: Context, mesh: Mesh, *, seed: int = 0) -> Problem:
    """Data and method of an experiment.

    Args:
      tree: from `config`.
      network: as in `config`.
      context: says where data may be.
      mesh: devices.
      seed: of the split.
    """
    tree = with_data(tree, context.data_dir)
    tree.seed = seed
    resolved = config_lib.resolve(tree)
    if network == PU_MLC:
        data, inputs = _voc(resolved), "random pixels, two batches of them, cropped already"
    elif tree.data.dir and not context.tiny:
        data, inputs = experiment.load_data(resolved), f"published images in {tree.data.dir}"
    else:
        raw = _random(network, context.tiny)
        settings = data_section.settings(resolved.data)
        data = dataset.build(raw, seed=seed, **settings)
        inputs = f"random pixels, {len(raw.train_inputs)} images of {raw.train_inputs.shape[1:]}"
    return Problem(method_setup.build(resolved, data, mesh), inputs, network == PU_MLC)


def with_data(tree: Any, data_dir: str) -> Any:
    """The configuration with its folder of `--data_dir`, if that names one."""
    plan = sweep.Plan("", [sweep.Cell("", "", tree)])
    return sweep_plan.set_folders(plan, data_dir).cells[0].config


@functools.lru_cache(maxsize=1)
def _random(network: str, tiny: bool) -> RawDataset:
    """Random pixels with classes in turn."""
    train, test, shape, classes = _SIZES[network]
    if tiny:
        train, test, shape = 300, 60, (8, 8, shape[-1])
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, [n, *shape], dtype=np.uint8) for n in (train, test)]
    labels = [(np.arange(n) % classes).astype(np.int32) for n in (train, test)]
    half = (0.5,) * shape[-1]
    names = ("",) * classes
    return RawDataset("random", images[0], labels[0], images[1], labels[1], names, half, half)


def _voc(resolved: Any) -> multilabel_dataset.MultilabelDataset:
    """Images as they arrive on the device after the host has cropped them."""
    side, size = resolved.data.image_size, resolved.method.batch_size
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, [2 * size, side, side, 3], dtype=np.uint8)
    labels = (rng.random([2 * size, _VOC_CLASSES]) < 0.2).astype(np.int8)
    half = (0.5,) * 3
    names = tuple(map(str, range(_VOC_CLASSES)))
    raw = RawDataset("random", images, labels, images[:2], labels[:2], names, half, half)
    data = multilabel_dataset.build(raw, seed=0, **data_section.settings(resolved.data))
    return data._replace(info=data.info._replace(load_side=resolved.data.load_size))


def on_platform(context: Context, needs: str) -> bool:
    """Whether a part for one platform runs here; a dry run takes any."""
    return context.tiny or not needs or jax.default_backend() == needs
