"""Problems and configurations small enough to train within a second."""

import os
import pathlib
from collections.abc import Callable

import jax
import ml_collections
import numpy as np
import pytest
from jax.sharding import Mesh

from pujax import accelerator, methods
from pujax.data import batching, dataset, multilabel_dataset, pu_dataset
from pujax.data import raw as raw_lib
from pujax.data.raw import RawDataset
from pujax.training import config as config_lib
from pujax.training import method_setup, preemption, run_state, sharding, train_loop, train_step
from pujax.training.config import flags
from pujax.training.seed_axis import Member

_REPOSITORY = pathlib.Path(__file__).resolve().parents[1]

OWN = os.environ.get("PUJAX_TEST_METHOD", "")
"""A method of one's own that is put to the tests as well, PACKAGE.MODULE; '' for none."""
METHODS = (*methods.names(), *filter(None, [OWN]))
"""All methods that what every method must do is tested on."""

# Set where a method has the field; a method of its own length or batch needs nothing else.
_SMALL = {
    "num_epochs": 4,
    "warmup_epochs": 1,
    "pretrain_epochs": 2,
    "head_batch_size": 16,
    "head_learning_rate": 0.1,
    "representation_epochs": 2,
    "pretrain_learning_rate": 0.01,
    "episode_epochs": 1,
    "representation_learning_rate": 0.01,
    "classifier_hidden": (16, 16),
    "batch_size": 16,
    "support_batch_size": 8,
    "learning_rate": 0.05,
    "warmup_learning_rate": 0.01,
    "round_epochs": 2,
    "num_clusters": 3,
    "neighbors_after_epoch": 1,
    "pick_start": 1,
    "pick_stop": 3,
    "pick_every": 1,
    "pick_ramp_epochs": 4,
    "teacher_start": 3,
    "num_neighbors": 4,
    "embedding_dim": 8,
    "align_dim": 8,
    "align_warmup_epochs": 1,
    "padding": 1,
    "flip": False,
}
# What differs for one method: Adam at the rate above throws some networks out of reach.
_SMALL_OF = {
    "puupl": {"learning_rate": 0.005},
    # At 4, its default, scores of negatives are still above 0 after so few steps.
    "asymmetric": {"gamma_negative": 2.0},
    "pan": {"learning_rate": 0.01, "discriminator_rate": 1.0},
    "holistic_pu": {"steps_per_epoch": 8, "teacher_decay": 0.5},
    # An early-learning term at full weight holds 24 steps to the untrained teacher.
    "p3mix_e": {"learning_rate": 0.01, "start_hmix": 1, "elr_weight": 0.5},
    "p3mix_c": {"learning_rate": 0.01, "start_hmix": 0},
}


def problem(seed=0, *, num_labeled=40, num_support=8, size=8, **changes):
    """Two well separated clouds of 8-pixel images: bright left half against bright right half.

    `changes` are arguments of `dataset.build`.
    """
    rng = np.random.default_rng(seed)
    labels = np.tile(np.arange(4, dtype=np.int32), 50)
    images = rng.normal(90, 25, [400, size, size, 1])
    half = size // 2
    both = np.concatenate([labels, labels])
    images[both < 2, :, :half] += 110
    images[both >= 2, :, half:] += 110
    images = np.clip(images, 0, 255).astype(np.uint8)
    raw = RawDataset(
        "clouds", images[:200], labels, images[200:], labels, ("a", "b", "c", "d"), (0.6,), (0.3,)
    )
    settings = {
        "positive_classes": (0, 1),
        "num_labeled": num_labeled,
        "num_support": num_support,
        "setting": "one_sample",
        "sampling": "stratified",
        "seed": seed,
    }
    return dataset.build(raw, **(settings | changes))


def table_problem(seed=0, *, num_features=6, **changes):
    """Two clouds of rows of numbers, two deviations apart, in units of their own per feature."""
    rng = np.random.default_rng(seed)
    labels = np.tile(np.arange(2, dtype=np.int32), 100)
    rows = rng.normal(0, 1, [400, num_features])
    rows[np.tile(labels, 2) == 1] += 2
    rows = (rows * 10.0 ** np.arange(-2, num_features - 2) + 5).astype(np.float32)
    mean, std = raw_lib.feature_statistics(rows[:200])
    raw = RawDataset("rows", rows[:200], labels, rows[200:], labels, ("n", "p"), mean, std)
    settings = {
        "positive_classes": (1,),
        "num_labeled": 40,
        "num_support": 8,
        "setting": "one_sample",
        "sampling": "stratified",
        "seed": seed,
    }
    return dataset.build(raw, **(settings | changes))


def own_table_info() -> pu_dataset.DataInfo:
    """Numbers of a table of one's own: no clean examples, and a share of positives."""
    changes = {"n_support": 0, "support_positives": 0, "prior": 0.4, "prior_unlabeled": 0.3}
    return table_problem().info._replace(n_p=80, n_u=400, **changes)


def multilabel_problem(seed=0, *, known_ratio=0.8, rows=False, size=8):
    """Images of 8 pixels with up to three bright thirds, one label each; or rows of numbers."""
    rng = np.random.default_rng(0)
    labels = (rng.random([400, 3]) < 0.4).astype(np.int8)
    if rows:
        inputs = (rng.normal(0, 0.5, [400, 6]) + np.repeat(labels, 2, axis=1) * 2).astype(
            np.float32
        )
        mean, std = raw_lib.feature_statistics(inputs[:200])
    else:
        images = rng.normal(60, 20, [400, size, size, 3])
        for third in range(3):  # a bright band of columns, the same in all channels
            images[labels[:, third] == 1, :, third::3] += 120
        inputs, mean, std = np.clip(images, 0, 255).astype(np.uint8), (0.4,) * 3, (0.3,) * 3
    raw = RawDataset(
        *("bands", inputs[:200], labels[:200], inputs[200:], labels[200:]),
        *(("a", "b", "c"), mean, std),
    )
    return multilabel_dataset.build(raw, known_ratio=known_ratio, seed=seed)


SAME_STEP = {
    **dict.fromkeys(("imbalanced_nnpu", "pusb", "upu"), "nnpu"),
    "weighted_bce": "naive",
    **dict.fromkeys(("assume_negative", "asymmetric"), "partial_bce"),
    "p3mix_c": "p3mix_e",
}
"""Methods that differ from another one in the loss or in settings alone: what does not look at the
loss is tested on the other one."""


KINDS = (
    *("classic", "cvir", "gradpu", "impulses", "lagam", "ncpu", "p3mix_e", "pu_mlc", "purl"),
    *("puupl", "self_pu", "vpu"),
)
"""One method of each kind: a step of its own, no batch norm, a threshold, labels or prototypes
beside the network, pretrained and ratio stages, an estimated prior, two networks, rounds, pairs
from two pools, halves of a batch for several labels, and what is fitted without steps."""


def by_kind(names, *daily: str, kinds=KINDS):
    """Methods as parameters of a test that looks at code which all methods share.

    Those named `daily` and one's own run by default, of the others one of each kind in the thorough
    tests; the rest is slow.
    """

    def marks(name):
        if name in daily or methods.is_own(name):
            return ()
        return pytest.mark.thorough if name in kinds else pytest.mark.slow

    return pytest.mark.parametrize("name", [pytest.param(x, marks=marks(x)) for x in names])


def shipped(monkeypatch, name: str, *changes: str) -> ml_collections.ConfigDict:
    """The configuration of a file in `configs/`, as the command line reads it."""
    monkeypatch.chdir(_REPOSITORY)
    return flags.parse(["", f"--config=configs/{name}.py", *changes])[0]


def config(method: str, *, model="small_cnn", options=None, dtype="float32", seed=0, **changes):
    """A resolved configuration of a method with small numbers."""
    tree = config_lib.default_config(method)
    tree.seed = seed
    tree.model.dtype = dtype
    tree.model.name = model
    tree.model.options = ml_collections.ConfigDict(
        options or {"hidden": (16,)} | ({} if model == "mlp" else {"channels": (4, 8, 8)})
    )
    tree.run.stop_after_epoch = changes.pop("stop_after_epoch", 0)
    tree.run.figures = False  # a second for every run, which few tests look at
    tree.init_from = changes.pop("init_from", "")
    if tree.method.get("optimizer") == "adam":
        changes = {"learning_rate": 0.005} | changes
    tree.run.update(changes.pop("run", {}))
    tree.data.update(changes.pop("data", {}))
    average = {"average_decay": 0.5} if tree.method.get("average_decay") else {}
    for key, value in (_SMALL | average | _SMALL_OF.get(method, {}) | changes).items():
        if key in tree.method:
            tree.method[key] = value
    return config_lib.resolve(tree)


def write_own_method(folder: pathlib.Path, package: str) -> None:
    """Writes a package whose module `mine` is uPU under its own name."""
    (folder / package).mkdir()
    (folder / package / "__init__.py").write_text("")
    text = (_REPOSITORY / "pujax" / "methods" / "upu.py").read_text()
    (folder / package / "mine.py").write_text(text.replace('"upu"', "__name__"))


# One program for a batch, as in training; eagerly every part of it is a program of its own.
gather = jax.jit(batching.gather, static_argnames=("first_epoch", "streamed"))


def mesh(num_devices=1) -> Mesh:
    """A mesh over the first devices."""
    return Mesh(np.asarray(jax.devices()[:num_devices]), ("data",))


def initialised(name: str, **changes):
    """A method on the tiny problem: the problem, the method, its arrays, the last stage's state."""
    data, devices = problem(), mesh()
    method = method_setup.build(config(name, **changes), data, devices).method
    arrays, state = sharding.replicate(data.training_data(), devices), None
    for stage in method.stages:
        state = train_step.init_state(stage, jax.random.key(0), state, arrays, devices)
    return data, method, arrays, state


class Trainer:
    """A method on devices, which can be run more than once with the same compiled steps.

    Args:
      method_config: resolved configuration.
      data: the problem.
      num_devices: how many devices share a batch.

    Attributes:
      traced: names of the stages whose step was traced, as often as it was.
    """

    def __init__(self, method_config, data, *, num_devices=1):
        self.traced: list[str] = []
        self.mesh = mesh(num_devices)
        self.setup = method_setup.build(method_config, data, self.mesh)
        self.method = self.setup.method
        arrays = pu_dataset.flat(self.setup.data.training_data())  # as a run keeps them
        self.arrays = sharding.replicate(arrays, self.mesh)
        self._trains, first_epoch = [], 0
        for stage in self.method.stages:

            def counted(*arguments, stage=stage):
                self.traced.append(stage.name)
                return stage.step(*arguments)

            train = train_step.make_train(
                stage._replace(step=counted),
                self.mesh,
                first_epoch=first_epoch,
                packed=accelerator.few_kernels(method_config.run.few_kernels),
            )
            self._trains.append((stage, train, first_epoch))
            first_epoch += stage.num_epochs

    def run(self, *, steps, per_call=1, seed=None, epochs=1):
        """Some steps of some epochs of every stage after one another; returns the last carry."""
        key = train_step.run_key(self.setup.config.seed if seed is None else seed, self.mesh)
        state, done, carry = None, 0, None
        for index, (stage, train, first_epoch) in enumerate(self._trains):
            init_key = train_step.stage_key(key, train_step.INIT, index)
            state = train_step.init_state(stage, init_key, state, self.arrays, self.mesh)
            inputs = None
            for epoch in range(first_epoch, first_epoch + epochs):
                if stage.refresh is not None:
                    refresh_key = train_step.stage_key(key, train_step.REFRESH, epoch)
                    state = stage.refresh(state, self.arrays, refresh_key)
                    if epoch > first_epoch:  # as the loop does
                        state = sharding.gather(state, self.mesh)
                sums = train_step.zero_sums(self.setup.metric_names[index], self.mesh)
                carry = train_step.Carry(state, sums)
                plan = train_step.epoch_plan(stage, key, epoch, self.arrays)
                if inputs is None:
                    inputs = train_step.stage_data(
                        stage, state, self.arrays, self.mesh, batch_size=64
                    )
                for step in range(0, steps, per_call):
                    carry = train(carry, inputs, plan, key, epoch, step, done, count=per_call)
                    done += per_call
                state = carry.state
        return carry


def train_steps(method_config, data, *, steps, num_devices=1, per_call=1):
    """Runs some steps of every stage after one another; returns the method and the last carry."""
    trainer = Trainer(method_config, data, num_devices=num_devices)
    return trainer.method, trainer.run(steps=steps, per_call=per_call)


# What happens around the steps, and is no part of a built method.
_AROUND = (
    *("checkpoint_every", "compare", "eval_batch_size", "figures", "keep_checkpoints", "nonfinite"),
    *("progress_seconds", "steps_per_dispatch", "stop_after_epoch", "tensorboard"),
)


def shared_setups() -> Callable:
    """`method_setup.build` that builds equal settings once: runs then share traces and programs.

    Configurations are equal where they differ in nothing but what happens around the steps. Of the
    data the digest counts, with what a method is told of them.
    """
    build, known = method_setup.build, {}

    def shared(config, data, mesh):
        tree = config.to_dict()
        for name in _AROUND:
            tree["run"].pop(name, None)
        about = (repr(tree), data.digest(), repr(data.info), mesh)
        if about not in known:
            known[about] = build(config, data, mesh)
        return known[about]._replace(config=config)

    return shared


class NoProgress:
    """Stands in for the progress bar."""

    enabled = True

    def start_at(self, steps):
        """Nothing."""

    def update(self, steps, **shown):
        """Nothing."""


def train_in(folder, method_config, data, *, num_devices=1, setup=None):
    """Trains or goes on in a folder as the loop does; returns where it stands and the rows."""
    devices = mesh(num_devices)
    setup = setup or method_setup.build(method_config, data, devices)
    run = run_state.prepare([Member(setup, data, str(folder))], devices)
    try:
        state = train_loop.train(run, NoProgress(), preemption.StopRequest())
    finally:
        run.close()
    timing = ("seconds", "examples_per_second")
    rows = run.writers[0].rows
    return state, [{k: v for k, v in row.items() if k not in timing} for row in rows]


def assert_same(first, second):
    """Two trees have as many leaves, which are equal bit for bit."""
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
