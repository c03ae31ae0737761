"""GradPU's tables: every method of the first builds, every cell of the second changes one thing."""

import importlib

import pytest

from pujax import methods
from pujax.configs import gradpu
from pujax.configs.sweeps import gradpu_labels, gradpu_table2
from pujax.training import config as config_lib
from pujax.training import experiment


@pytest.mark.parametrize("name", gradpu._METHODS)
def test_every_method_builds_on_the_digits(name):
    config = config_lib.resolve(gradpu.get_config(f"task=digits,method={name}"))
    methods.build(config, experiment.load_data(config).info)


def test_self_pu_has_its_authors_settings_and_images_of_its_own():
    config = gradpu.get_config("task=mnist,method=self_pu")
    method = config.method
    assert (method.num_epochs, method.batch_size) == (200, 256)
    assert (method.learning_rate, method.weight_decay) == (5e-4, 5e-3)
    assert (config.data.num_support, config.data.num_validation) == (500, 500)


@pytest.mark.parametrize(
    "name",
    [f"gradpu_table{number}" for number in (1, 2, 3, 4)]
    + ["gradpu_rates", "gradpu_upweighting", "own_protocols"],
)
def test_figures_of_a_best_epoch_are_compared_with_our_best_epoch(name):
    """They were chosen on test labels: beside our last epoch they would look out of reach."""
    plan = importlib.import_module(f"pujax.configs.sweeps.{name}").get_plan()
    assert any(cell.published for cell in plan.cells)
    assert plan.published_rule == "oracle_best_epoch"


def test_every_regulariser_changes_one_field_and_the_penalty_is_off():
    fields = {
        "width": ("model", "options.hidden"),
        "weight decay": ("method", "weight_decay"),
        "dropout": ("model", "options.dropout"),
        "input noise": ("method", "input_noise"),
        "mixup": ("method", "mixup_alpha"),
    }
    cells = gradpu_table2.get_plan().cells
    assert len(cells) == (4 + 6 + 4 + 4 + 5) * 3
    for cell in cells:
        plain = gradpu.get_config(gradpu_table2.COLUMNS[cell.column])
        plain.method.alpha, plain.method.learning_rate = 0.0, 1e-4
        kind, _, value = cell.row.rpartition(" ")
        section, field = fields[kind]
        config = config_lib.resolve(cell.config).to_dict()
        expected = config_lib.resolve(plain).to_dict()
        place, wanted = config[section], expected[section]
        if field.startswith("options."):
            place, wanted = place["options"], wanted["options"]
        name = field.removeprefix("options.")
        number = float(value)
        assert place[name] == ((int(number),) * 4 if name == "hidden" else number)
        place.pop(name)
        wanted.pop(name, None)
        assert config == expected, cell.name
    assert len(gradpu_table2.get_plan("regulariser=mixup").cells) == 15


def test_more_labels_change_their_number_alone_and_begin_with_table_1():
    cells = {cell.name: cell.config for cell in gradpu_labels.get_plan("data=all").cells}
    assert len(cells) == 2 * 5 * 6
    for method, row in gradpu_labels._ROWS.items():
        for column, task in (("MNIST", "mnist"), ("FMNIST", "fashion_mnist")):
            first = gradpu.get_config(f"task={task},labeled=1000,method={method}")
            assert cells[f"{row} on {column} 1k"].to_dict() == first.to_dict()
            for thousands in (2, 4, 8, 16):
                config = cells[f"{row} on {column} {thousands}k"]
                assert config.data.num_labeled == 1000 * thousands
                config.data.num_labeled = 1000
                assert config.to_dict() == first.to_dict()
    assert [cell.column for cell in gradpu_labels.get_plan().cells[::6]] == [
        *("MNIST 1k", "MNIST 2k", "MNIST 4k", "MNIST 8k", "MNIST 16k")
    ]
