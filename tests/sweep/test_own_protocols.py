"""Methods in their own protocols: what Robust-PU is given, and what its episodes do to nnPU."""

import json

import numpy as np
import pytest

from pujax import sweep
from pujax.configs import robust_pu
from pujax.configs.sweeps import own_protocols
from pujax.data import dataset, raw
from pujax.sweep import plan as plan_lib
from pujax.sweep import runner
from pujax.training import config as config_lib
from pujax.training.config import data_section
from tests.conftest import real_data_folder

FIRST, FULL, FROM_LAST, PUBLISHED = (
    "nnPU, Robust-PU's first stage",
    "Robust-PU",
    "Robust-PU, from nnPU's last epoch",
    "Robust-PU, schedule published for MNIST",
)


@pytest.mark.parametrize(("prior", "hidden"), [(0.2, 160), (0.4, 320), (0.6, 480)])
def test_p_and_u_of_robust_pu_are_drawn_apart_and_the_test_set_has_the_share_of_u(prior, hidden):
    labels = np.repeat(np.arange(2, dtype=np.int32), 3000)
    inputs = np.arange(len(labels), dtype=np.float32)[:, None]
    test = np.repeat(np.arange(2, dtype=np.int32), 500)
    rows = inputs, labels, inputs[: len(test)], test
    made = raw.RawDataset("made", *rows, class_names=("no", "yes"), mean=(0.0,), std=(1.0,))
    config = robust_pu.get_config(f"data=mushrooms,prior={prior}")
    found = dataset.build(made, seed=0, **data_section.settings(config.data))
    assert (found.info.n_p, found.info.n_u, found.info.prior) == (400, 800, prior)
    assert found.truth[~found.labeled].sum() == hidden and found.truth[found.labeled].all()
    ids = np.concatenate([found.source_ids, found.validation_ids])
    assert len(found.validation_ids) == 100 and len(np.unique(ids)) == len(ids) == 1300
    assert found.test_labels.mean() == pytest.approx(prior, abs=1e-3)


@pytest.mark.parametrize(
    ("data", "positive"), [("mnist", [0, 2, 4, 6, 8]), ("cifar10", [0, 1, 8, 9])]
)
def test_images_of_robust_pu_are_drawn_from_the_classes_it_names(data, positive):
    labels = np.repeat(np.arange(10, dtype=np.int32), 1500)
    inputs = np.arange(len(labels), dtype=np.float32)[:, None]
    test = np.repeat(np.arange(10, dtype=np.int32), 100)
    names = tuple(map(str, range(10)))
    rows = inputs, labels, inputs[: len(test)], test
    made = raw.RawDataset("made", *rows, class_names=names, mean=(0.0,), std=(1.0,))
    config = robust_pu.get_config(f"data={data},prior=0.4")
    found = dataset.build(made, seed=0, **data_section.settings(config.data))
    assert (found.info.n_p, found.info.n_u, len(found.validation_ids)) == (2000, 4000, 500)
    for is_positive, classes in ((True, positive), (False, np.setdiff1d(range(10), positive))):
        np.testing.assert_array_equal(
            np.unique(labels[found.source_ids[found.truth == is_positive]]), classes
        )


@pytest.mark.parametrize("data", ["mushrooms", "spambase", "mnist", "cifar10"])
def test_robust_pu_sees_numbers_as_they_are_but_spambase_in_batches_of_p_and_u_together(data):
    config = config_lib.resolve(robust_pu.get_config(f"data={data}"))
    assert config.data.scaling == ("standard" if data == "spambase" else "unit")
    assert (config.method.batching, config.method.positive_share) == ("joint", 0)
    assert not config.method.augment
    assert config.model.options.initializer == "he_normal"
    if config.model.name == "mlp":
        assert config.model.options.hidden == (100,)


def test_rows_of_robust_pu_differ_in_what_their_names_say():
    plan = own_protocols.get_plan()
    plan_lib.check(plan)
    rows = {cell.row: cell.config for cell in plan.cells if cell.column == "mushrooms 0.4"}
    methods = {row: config_lib.resolve(config).method for row, config in rows.items()}
    full = methods[FULL].to_dict()

    def changes(row):
        return {k: v for k, v in methods[row].items() if full[k] != v}

    assert full["num_epochs"] == 125 and changes(FIRST) == {"num_epochs": 100}
    assert changes(FROM_LAST) == {"pretrain_selection": "last"}
    assert changes(PUBLISHED) == {"num_epochs": 500, "episode_epochs": 20, "learning_rate": 0.01}
    assert {config.data.class_prior for config in rows.values()} == {0.4}
    (spam,) = (c for c in plan.cells if c.column == "spambase 0.4" and c.row == FULL)
    first, second = (config.to_dict() for config in (rows[FULL], spam.config))
    changed = {
        name: {key for key in section if section[key] != second[name][key]}
        for name, section in first.items()
        if isinstance(section, dict)
    }
    changed = {name: keys for name, keys in changed.items() if keys}
    assert changed == {"data": {"source", "scaling"}}
    assert (first["data"]["scaling"], second["data"]["scaling"]) == ("unit", "standard")
    assert "90.21 ± 1.4" in spam.note  # an error of 9.79, of which the spread is the same


@pytest.mark.slow
def test_episodes_keep_what_nnpu_has_found_on_mushrooms(tmp_path):
    """A fifth of U is positive; begun at nnPU's last epoch, they end no worse than that.

    Begun at the epoch that a hundred held-out examples choose, the default, they do not.
    """
    folder = real_data_folder("libsvm")
    cells = [
        cell
        for cell in own_protocols.get_plan().cells
        if cell.column == "mushrooms 0.2" and cell.row in (FIRST, FROM_LAST)
    ]
    for cell in cells:
        cell.config.data.dir = str(folder)
    plan = sweep.Plan("toy", cells, seeds=(0, 1, 2))
    assert not runner.run(plan, str(tmp_path))
    found = json.loads((tmp_path / "results.json").read_text())["records"]
    nnpu, robust = (
        np.mean([one["metrics"]["last"]["accuracy"] for one in found if one["row"] == row])
        for row in (FIRST, FROM_LAST)
    )
    assert robust > max(nnpu - 0.003, 0.98)
