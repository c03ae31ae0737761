"""The plan of ImPULSeS with few labels: same images for every number of labels, one encoder."""

import os

import pytest

from pujax import methods
from pujax.configs.sweeps import impulses_labels
from pujax.data import dataset, sources
from pujax.sweep import plan as plan_lib
from pujax.sweep import resume
from pujax.training import config as config_lib
from pujax.training.config import data_section

ROWS = ("frozen encoder", "fine-tuned encoder", "from scratch")


def problem(config, seed):
    settings = data_section.settings(config.data)
    return dataset.build(sources.load("digits"), seed=seed, **settings)


def test_the_images_are_the_same_for_every_number_of_labels_and_every_seed():
    cells = impulses_labels.get_plan("encoders=E").cells
    (encoder,) = impulses_labels.get_plan().cells
    wanted = problem(encoder.config, 0)
    labels = {}
    for cell in cells:
        for seed in (0, 1):
            found = problem(cell.config, seed)
            assert set(found.source_ids) == set(wanted.source_ids)
            assert (found.truth.sum(), len(found.truth)) == (80, 770)
            labels.setdefault(cell.column, []).append(set(found.source_ids[found.labeled]))
    sets = [groups[0] for groups in labels.values()]
    assert [len(group) for group in sets] == [5, 10, 20, 40]
    assert all(group == groups[0] for groups in labels.values() for group in groups)
    assert all(fewer < more for fewer, more in zip(sets, sets[1:], strict=False))


@pytest.mark.parametrize("name", ["digits", "fashion_mnist", "cifar10"])
def test_rows_start_from_the_encoder_of_their_seed_or_from_nothing(name):
    plan = impulses_labels.get_plan(f"encoders=E,data={name}")
    plan_lib.check(plan)
    (encoder,) = impulses_labels.get_plan(f"data={name}").cells
    place = resume.seed_folder(os.path.join("E", encoder.folder), 7)
    assert encoder.config.method.pretrain_epochs == encoder.config.method.num_epochs > 0
    assert encoder.config.model.options.width == 16
    for first in range(0, len(plan.cells), len(ROWS)):
        frozen, tuned, scratch = plan.cells[first : first + len(ROWS)]
        assert (frozen.row, tuned.row, scratch.row) == ROWS
        for cell in (frozen, tuned):
            assert cell.config.init_from.format(seed=7) == place
        alike = tuned.config.copy_and_resolve_references()
        alike.init_from = ""
        assert alike == scratch.config  # nothing but the start differs
        rates = [x.config.method.head_learning_rate for x in (frozen, tuned)]
        assert rates == [0.003, "auto"]  # which is 0.0003 for a whole network
        for cell in (frozen, tuned, scratch):
            config = config_lib.resolve(cell.config)
            assert config.model == config_lib.resolve(encoder.config).model
            assert config.method.head_loss == "imbalanced_nnpu"


def test_a_row_has_one_stage_with_labelled_positives_in_every_batch():
    frozen, tuned, scratch = impulses_labels.get_plan("encoders=E").cells[:3]
    for cell, name in ((frozen, "head"), (tuned, "finetune"), (scratch, "finetune")):
        config = config_lib.resolve(cell.config)
        (stage,) = methods.build(config, problem(cell.config, 0).info).stages
        assert (stage.name, stage.encode is not None) == (name, name == "head")
        assert (stage.batching.batch_size, stage.batching.num_positives) == (64, 8)
    (encoder,) = impulses_labels.get_plan().cells
    config = config_lib.resolve(encoder.config)
    method = methods.build(config, problem(encoder.config, 0).info)
    assert len(method.stages) == 1 and method.encoder is not None


def test_all_sets_are_one_plan_and_unknown_ones_are_refused():
    plan = impulses_labels.get_plan("encoders=E,data=all,metric=f1")
    assert (plan.metric, plan.also, len(plan.cells)) == ("f1", ["auc", "accuracy"], 3 * 10)
    assert len({cell.folder for cell in plan.cells}) == 30
    with pytest.raises(ValueError, match="data is 'mnist'; accepted: digits"):
        impulses_labels.get_plan("data=mnist")
