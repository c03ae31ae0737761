"""Configuration: a wrong field is one clear error, before anything is compiled or written."""

import os
import pathlib
import re

import ml_collections
import pytest

from pujax import methods, models
from pujax.configs import baseline, own_folder, own_table
from pujax.configs.sweeps import pu_mlc_small
from pujax.data import sources
from pujax.training import config as config_lib
from pujax.training import experiment, method_setup, own_results
from pujax.training.config import data_section, flags
from tests import tiny

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BINARY = [name for name in methods.names() if not methods.is_multilabel(name)]
ON_OWN_ROWS = methods.for_own_rows(tiny.OWN, has_support=True)
CONFIGS = sorted(p for p in (REPOSITORY / "configs").glob("*.py") if p.stem != "common")


def changed(**fields):
    config = config_lib.default_config("lagam")
    for path, value in fields.items():
        section, _, field = path.partition("__")
        with config.ignore_type():
            config[section][field] = value
    return config


@pytest.mark.parametrize("name", tiny.METHODS)
def test_defaults_of_every_method_resolve(name):
    resolved = config_lib.resolve(config_lib.default_config(name))
    assert resolved.method.name == name


@pytest.mark.parametrize(
    ("method", "fields", "rule"),
    [
        ("naive", {}, "last"),
        ("naive", {"num_validation": 9}, "proxy_accuracy_vpu"),
        ("weighted_bce", {"num_validation": 9}, "proxy_accuracy_vpu"),
        ("naive", {"num_labeled": 0, "holdout": 0.2}, "vpu_risk"),
        ("gradpu", {"num_labeled": 0, "holdout": 0.2, "prior": "auto"}, "proxy_accuracy"),
        ("gradpu", {"num_labeled": 0, "holdout": 0.2}, "proxy_auc"),  # whose prior is unknown
        ("vpu", {"num_labeled": 0, "holdout": 0.2}, "vpu_risk"),
        ("nnpu", {"num_validation": 9}, "last"),
    ],
)
def test_the_reported_epoch_is_chosen_where_a_method_needs_it(method, fields, rule):
    config = config_lib.default_config(method)
    assert config.run.selection == "auto"
    with config.ignore_type():
        config.data.update(fields)
    resolved = config_lib.resolve(config)
    assert resolved.run.selection == rule
    assert config_lib.resolve(resolved).run.selection == rule
    config.run.selection = "last"
    assert config_lib.resolve(config).run.selection == "last"


@pytest.mark.parametrize("name", BINARY)
def test_a_baseline_holds_out_what_its_rules_need(name):
    for task, number in (("digits", 100), ("mnist", 500)):
        config = baseline.get_config(f"method={name},task={task}")
        chooses = methods.selection(name) != "last"
        assert config.data.num_validation == number * chooses
        rule = config_lib.resolve(config).run.selection
        assert rule == methods.selection(name)


@pytest.mark.parametrize("task", ["digits", "digits-imbalanced", "mnist", "usps", "fashion_mnist"])
@pytest.mark.parametrize("name", BINARY)
def test_random_views_of_a_task_leave_an_image_what_it_is(name, task):
    """No digit is mirrored, and eight pixels move by one but for one method, switched on or not."""
    chosen = baseline.get_config(f"method={name},task={task}").method
    published = config_lib.default_config(name).method
    fields = [x for x in ("flip", "padding", "crop_area", "align_crop_area") if x in chosen]
    assert fields or name in ("classic", "purl")
    for field in fields:
        expected = published[field]
        if field == "flip" and task in ("digits", "digits-imbalanced", "mnist"):
            expected = False
        elif task.startswith("digits"):
            shift = 4 if name == "holistic_pu" else 1
            expected = shift if field == "padding" else 0.5
        assert chosen[field] == expected, field
    if task == "usps" and "augment" in chosen:  # a table here
        assert not chosen.augment


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_every_configuration_file_resolves(path, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    needed = ["--config.data.path=rows"] if path.stem in ("own_table", "own_folder") else []
    config, workdir, name = flags.parse(["train.py", f"--config={path}", *needed])
    config_lib.resolve(config)
    assert workdir == "" and name == path.stem


@pytest.mark.parametrize(
    "argument",
    [
        "task=cifar10-2,backbone=cnn7",
        "task=cifar100-1,backbone=cnn13",
        "task=cifar100-2",
    ],
)
def test_config_arguments_choose_task_and_backbone(argument):
    path = REPOSITORY / "configs" / "lagam_cifar.py"
    config = config_lib.resolve(flags.parse(["", f"--config={path}:{argument}"])[0])
    wanted = dict(part.split("=") for part in argument.split(","))
    assert config.model.name == wanted.get("backbone", "resnet18")
    assert config.data.source == wanted["task"].split("-")[0]
    assert config.data.num_labeled == 1000 and config.data.num_support == 500
    assert config.method.num_clusters == (5 if config.data.source == "cifar10" else 100)


@pytest.mark.parametrize("method", BINARY)
def test_every_method_is_built_for_the_digits_by_the_baseline_config(method):
    """The small network of the default and the default task must do for all of them."""
    path = REPOSITORY / "configs" / "baseline.py"
    config = config_lib.resolve(flags.parse(["", f"--config={path}:method={method}"])[0])
    made = method_setup.build(config, experiment.load_data(config), tiny.mesh())
    assert made.method.stages


@pytest.mark.parametrize("method", BINARY)
def test_every_method_is_built_for_a_table_by_the_baseline_config(method):
    """Network and views are chosen for tables by the task alone."""
    path = REPOSITORY / "configs" / "baseline.py"
    arguments = f"method={method},task=a9a"
    config = config_lib.resolve(flags.parse(["", f"--config={path}:{arguments}"])[0])
    assert config.model.name == "mlp"
    sizes = {"n_p": 1000, "n_u": 31_061, "n_support": 500, "support_positives": 250}
    info = tiny.table_problem().info._replace(**sizes)
    assert methods.module(method).build(config, info).stages


@pytest.mark.parametrize("method", [name for name in methods.names() if name not in BINARY])
def test_the_baseline_config_is_of_one_label_per_example(method):
    path = REPOSITORY / "configs" / "baseline.py"
    with pytest.raises(ValueError, match=f"{method}.*accepted.*nnpu"):
        flags.parse(["", f"--config={path}:method={method}"])


def test_a_problem_is_drawn_as_the_data_section_says():
    config = config_lib.default_config("nnpu")
    config.data.update({"setting": "two_sample", "num_unlabeled": 200, "class_prior": 1 / 4})
    config.data.update({"num_validation": 60, "validation_labeled": 20})
    data = experiment.load_data(config_lib.resolve(config))
    assert (data.info.n_p, data.info.n_u, data.info.prior) == (100, 200, 0.25)
    assert data.validation_truth[~data.validation_labeled].sum() == 10
    assert data.test_labels.mean() == pytest.approx(0.25, abs=0.5 / len(data.test_labels))


@pytest.mark.parametrize("method", ["nnpu", "dist_pu", "imbalanced_nnpu", "vpu"])
def test_a_comparison_takes_length_and_optimizer_and_leaves_the_loss(method):
    config = config_lib.resolve(config_lib.default_config(method))
    for other in ("naive", "supervised"):
        compared = config_lib.resolve(config_lib.to_compare(config, other)).method
        own = methods.module(other).default_config()
        assert (compared.loss, compared.batching) == (own.loss, own.batching)
        assert compared.num_epochs == config.method.num_epochs
        rate = 5e-4 if method == "dist_pu" else config.method.learning_rate  # that of its warm-up
        assert compared.learning_rate == rate


@pytest.mark.parametrize("name", [x for x in methods.without_negatives(tiny.OWN) if x != "nnpu"])
@pytest.mark.parametrize("num_epochs", [4, 30])
def test_every_method_without_negatives_can_be_compared_on_ones_own_table(name, num_epochs):
    config = own_table.get_config()
    assert config.method.name == "nnpu" and config.method.num_epochs == 30
    config.data.path = "customers.csv"
    config.method.num_epochs = num_epochs
    compared = config_lib.to_compare(config_lib.resolve(config), name, is_table=True)
    stages = methods.build(config_lib.resolve(compared), tiny.own_table_info()).stages
    lengths = [stage.num_epochs for stage in stages]
    assert min(lengths) > 0
    if methods.has_network(name):
        assert sum(lengths) == num_epochs


@pytest.mark.parametrize("name", [x for x in ON_OWN_ROWS if x not in ("nnpu", "gradpu")])
def test_every_method_can_be_compared_on_ones_own_folder_with_the_views_that_it_needs(name):
    config = own_folder.get_config()
    config.data.update({"path": "images", "num_support": 8})
    config.method.update({"flip": False, "batch_size": 32})
    info = tiny.problem().info
    compared = config_lib.resolve(config_lib.to_compare(config_lib.resolve(config), name))
    built = methods.build(own_results.with_fitting_batches(compared, info.n), info)
    assert all(stage.num_epochs > 0 for stage in built.stages)
    if methods.has_network(name):
        assert compared.method.get("augment", False) == methods.compares_views(name)
        assert not compared.method.get("flip", False)  # a mirrored image is another thing here


@pytest.mark.parametrize("name", [x for x in tiny.METHODS if methods.has_network(x)])
def test_a_method_of_twice_the_length_has_stages_of_twice_the_length(name):
    config = config_lib.default_config(name)
    config.model.name = "mlp"
    if "augment" in config.method:
        config.method.augment = False
    info = tiny.multilabel_problem(rows=True).info
    if not methods.is_multilabel(name):
        info = tiny.own_table_info()._replace(n_support=500, support_positives=250)
    lengths = []
    for _ in range(2):
        built = methods.build(config_lib.resolve(config), info)
        lengths.append({stage.name: stage.num_epochs for stage in built.stages})
        methods.set_length(config.method, 2 * config.method.num_epochs)
    assert lengths[1] == {stage: 2 * length for stage, length in lengths[0].items()}


def test_a_length_is_shared_in_whole_epochs_and_whole_rounds():
    for num_epochs, first in ((30, 25), (3, 2), (2, 1), (1, 1)):
        section = methods.module("lbe").default_config()  # 100 of 120
        methods.set_length(section, num_epochs)
        assert (section.num_epochs, section.pretrain_epochs) == (num_epochs, first)
    section.pretrain_epochs = 0  # a stage that is left out
    methods.set_length(section, 30)
    assert section.pretrain_epochs == 0
    for num_epochs, of_a_round in ((200, 20), (30, 3), (33, 3), (35, 1)):
        section = methods.module("puupl").default_config()
        methods.set_length(section, num_epochs)
        assert (section.num_epochs, section.round_epochs) == (num_epochs, of_a_round)
    section = methods.module("classic").default_config()
    methods.set_length(section, 30)
    assert section.to_dict() == methods.module("classic").default_config().to_dict()
    for wrong in (0, -3, 2.5):
        with pytest.raises(ValueError, match=f"num_epochs is {wrong}; accepted: an integer from 1"):
            methods.set_length(methods.module("lbe").default_config(), wrong)


@pytest.mark.parametrize("source", ["own_table", "own_folder"])
def test_nnpu_has_the_logistic_loss_on_own_rows_and_its_published_one_elsewhere(source):
    file = {"own_table": own_table, "own_folder": own_folder}[source]
    assert file.get_config("").method.loss == "logistic"
    assert file.get_config("method=upu").method.loss == "sigmoid"
    beside = config_lib.to_compare(file.get_config("method=vpu"), "nnpu")
    assert beside.method.loss == "logistic"
    assert config_lib.default_config("nnpu").method.loss == "sigmoid"
    assert config_lib.to_compare(config_lib.default_config("vpu"), "nnpu").method.loss == "sigmoid"


@pytest.mark.parametrize("source", ["own_table", "own_folder"])
def test_a_method_that_needs_clean_examples_gets_some_on_own_rows(source):
    file = {"own_table": own_table, "own_folder": own_folder}[source]
    config = file.get_config("method=lagam")
    assert config.data.num_support == config.method.support_batch_size == 60
    assert config.method.num_epochs == 60
    assert file.get_config("").data.num_support == 0
    published = config_lib.default_config("lagam").method
    assert published.num_epochs == 400 and published.rho_start == 0.95


def test_own_images_may_have_any_network_that_takes_images():
    assert own_folder.get_config("").model.options.channels == (16, 32, 64)
    names = [x for x in models.NAMES if x not in models.FOR_TABLES]
    for name in (*names, config_lib.SAVED):
        config = own_folder.get_config(f"backbone={name}")
        assert config.model.name == name
        assert name == "small_cnn" or not config.model.options
        if name != config_lib.SAVED:
            config.data.path = "images"
            config_lib.resolve(config)
    with pytest.raises(ValueError, match="config argument backbone is 'mlp'; accepted: small_cnn"):
        own_folder.get_config("backbone=mlp")


@pytest.mark.parametrize("backbone", ["small_cnn", "cnn7", "cnn9", "cnn13", "lenet"])
def test_gradpu_has_no_batch_norm_on_own_images(backbone):
    config = own_folder.get_config(f"method=gradpu,backbone={backbone}")
    config.data.path = "images"
    assert config.data.scaling == "unit"
    info = tiny.problem().info._replace(input_shape=(64, 64, 3), mean=(0.5,) * 3, std=(0.5,) * 3)
    methods.build(config_lib.resolve(config), info)


@pytest.mark.parametrize("source", ["own_table", "own_folder"])
@pytest.mark.parametrize("name", ["nnpu", "vpu", "ncpu"])
def test_beside_classical_rows_a_method_is_as_it_is_by_itself_on_own_rows(source, name):
    file = {"own_table": own_table, "own_folder": own_folder}[source]
    config, is_table = file.get_config("method=classic"), source == "own_table"
    beside = config_lib.to_compare(config, name, is_table=is_table).method
    assert beside.to_dict() == file.get_config(f"method={name}").method.to_dict()


@pytest.mark.parametrize("task", ["digits", "mnist"])
@pytest.mark.parametrize("name", ["holistic_pu", "impulses", "lagam", "ncpu"])
def test_beside_classical_rows_of_a_named_set_no_views_of_photographs_are_taken(task, name):
    """A mirrored digit is none; which views suit a set says the configuration of a method there."""
    config = baseline.get_config(f"method=classic,task={task}")
    assert not config_lib.to_compare(config, name).method.augment
    config = baseline.get_config(f"method=nnpu,task={task}")
    beside = config_lib.to_compare(config, name).method
    assert beside.augment and not beside.flip


@pytest.mark.parametrize("source", ["own_table", "own_folder"])
def test_self_pu_learns_no_weights_on_own_rows_which_hold_no_clean_examples(source):
    file = {"own_table": own_table, "own_folder": own_folder}[source]
    assert not file.get_config("method=self_pu").method.calibration_meta
    assert not config_lib.to_compare(file.get_config(""), "self_pu").method.calibration_meta
    elsewhere = config_lib.to_compare(config_lib.default_config("nnpu"), "self_pu")
    assert elsewhere.method.calibration_meta


@pytest.mark.parametrize("name", BINARY)
def test_settings_for_own_rows_are_fields_of_the_method_and_differ_from_its_default(name):
    section = methods.module(name).default_config()
    for field, value in methods.own_rows(name).items():
        assert section[field] != value, (name, field)


def test_headline_config_holds_the_published_settings():
    path = REPOSITORY / "configs" / "lagam_cifar.py"
    method = config_lib.resolve(flags.parse(["", f"--config={path}"])[0]).method
    # lagam.md section 11.
    published = {
        "num_epochs": 400,
        "warmup_epochs": 20,
        "batch_size": 64,
        "support_batch_size": 64,
        "learning_rate": 1e-3,
        "lr_drops": (250, 300, 350),
        "lr_factor": 0.1,
        "momentum": 0.9,
        "weight_decay": 1e-4,
        "temperature": 0.07,
        "num_clusters": 5,
        "kmeans_iterations": 20,
        "kmeans_restarts": 5,
        "num_neighbors": 10,
        "neighbors_after_epoch": 50,
        "cutoff": 0.5,
        "rho_start": 0.95,
        "rho_end": 0.80,
        "meta_learning_rate": 1e-3,
        "mixup_alpha": 4.0,
        "classification_loss": "balanced",
        "pin_labeled": True,
        "skip_empty_batches": True,
    }
    assert {name: method[name] for name in published} == published


@pytest.mark.parametrize(
    ("argument", "names"),
    [
        ("tusk=cifar10-1", ["tusk", "task"]),
        ("task=cifar11", ["task", "cifar11", "cifar10-1"]),
        ("backbone=vgg", ["backbone", "vgg", "resnet18"]),
        ("task", ["task has no value", "accepted: task=cifar10-1, cifar10-2"]),
    ],
)
def test_bad_config_argument_is_named(argument, names):
    path = REPOSITORY / "configs" / "lagam_cifar.py"
    with pytest.raises(ValueError) as error:
        flags.parse(["", f"--config={path}:{argument}"])
    assert all(name in str(error.value) for name in names)


@pytest.mark.parametrize(
    ("argument", "said"),
    [("part=rule,folder", "folder=TEXT"), ("part", "part=ratios, rule, choice")],
)
def test_a_key_of_a_plan_without_its_value_is_named(argument, said):
    with pytest.raises(ValueError, match=f"has no value; accepted: {said}"):
        pu_mlc_small.get_plan(argument)


def test_powers_of_the_hidden_share_are_compared_with_fixed_gammas():
    cells = pu_mlc_small.get_plan("part=choice,folder=F").cells
    assert len(cells) == 72 and all(cell.config.method.gamma != "auto" for cell in cells)
    for cell in cells:
        if cell.row.startswith("(1 - r)^"):
            hidden = 1 - cell.config.data.known_ratio
            assert cell.config.method.gamma == pytest.approx(hidden ** int(cell.row[-1]))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data__prior", 0.0),
        ("data__prior", 1.0),
        ("data__prior", 1.5),
        ("data__prior", float("nan")),
        ("data__prior", "much"),
        ("data__prior", True),
        ("data__source", "imagenet"),
        ("data__setting", "both"),
        ("data__sampling", "x"),
        ("data__scaling", "none"),
        ("data__labeling", "x"),
        ("data__labeling_power", 2.0),  # 'scar' has no exponent
        ("data__labeling_power", -1.0),
        ("data__num_validation", -1),
        ("data__validation_labeled", 1),  # of no validation set
        ("run__selection", "best"),
        ("run__selection", "proxy_auc"),  # without a validation set
        ("data__num_labeled", -1),
        ("data__num_labeled", 10.5),
        ("data__num_support", -1),
        ("data__num_unlabeled", -1),
        ("data__num_unlabeled", 0.5),
        ("data__class_prior", 0.0),
        ("data__class_prior", 1),
        ("data__class_prior", "half"),
        ("data__label_column", 3),
        ("data__positive_classes", "0,1"),
        ("data__positive_classes", (0.5,)),
        ("model__name", "vgg"),
        ("model__dtype", "float16"),
        ("method__num_epochs", 0),
        ("method__batch_size", 1),
        ("method__batch_size", "64"),
        ("method__learning_rate", float("nan")),
        ("method__learning_rate", float("inf")),
        ("method__use_meta", 1),
        ("run__eval_every", -1),
        ("run__nonfinite", "ignore"),
        ("run__stop_after_epoch", -1),
        ("run__tensorboard", "on"),
    ],
)
def test_bad_value_names_field_value_and_what_is_accepted(field, value):
    with pytest.raises(ValueError) as error:
        config_lib.resolve(changed(**{field: value}))
    text = str(error.value)
    assert field.replace("__", ".") in text
    assert repr(value) in text
    assert "accepted" in text


def test_unknown_key_is_refused_with_a_suggestion():
    config = config_lib.default_config("lagam")
    with config.unlocked():
        config.method.rho_strat = 0.9
    with pytest.raises(ValueError, match=r"method.rho_strat .*rho_start"):
        config_lib.resolve(config)


def test_unknown_method_is_refused_with_the_known_ones():
    config = config_lib.default_config("lagam")
    config.method.name = "lagan"
    with pytest.raises(ValueError, match=r"method.name is 'lagan'; accepted: .*'lagam'"):
        config_lib.resolve(config)


def test_unknown_compared_method_is_refused():
    with pytest.raises(ValueError, match="run.compare is 'naif'; accepted: .*'naive'"):
        config_lib.resolve(changed(run__compare="naif"))


def test_an_unknown_compared_method_on_own_rows_gets_the_names_that_own_rows_take():
    config = own_table.get_config("")
    config.data.path = "a.csv"
    config.run.compare = "xgboost"
    with pytest.raises(ValueError, match="run.compare is 'xgboost'; accepted: ") as error:
        config_lib.resolve(config)
    listed = set(re.findall(r"'(\w+)'", str(error.value).partition("accepted")[2]))
    assert listed == set(methods.without_negatives()) - {"nnpu"}


@pytest.mark.parametrize(
    ("compare", "accepted"),
    [
        ("naive,lagam", "methods other than the run's own, 'lagam'"),
        ("naive, nnpu, naive", "every method once"),
    ],
)
def test_methods_that_would_share_a_folder_are_not_compared(compare, accepted):
    message = f"^run.compare is '{compare}'; accepted: {accepted}"
    with pytest.raises(ValueError, match=message):
        config_lib.resolve(changed(run__compare=compare))


def test_missing_section_is_refused():
    config = config_lib.default_config("lagam")
    with config.unlocked():
        del config.run
    with pytest.raises(ValueError, match="run"):
        config_lib.resolve(config)


def test_integer_may_stand_for_a_float_but_is_stored_as_one():
    resolved = config_lib.resolve(changed(method__mixup_alpha=2))
    assert isinstance(resolved.method.mixup_alpha, float)


def parse(*arguments):
    return flags.parse(["", f"--config={REPOSITORY / 'configs' / 'lagam_digits.py'}", *arguments])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = unknown", r"raised NameError: name 'unknown' is not defined \(.*mine.py, line 1\)"),
        ("def get_config(argument=''):\n    return 1", "get_config returns a int; accepted: "),
        ("def get_config(argument=''):\n    return {}", "get_config returns a dict; accepted: "),
    ],
)
def test_a_config_file_without_a_configuration_is_named_in_one_line(tmp_path, text, said):
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"^--config={path}.*{said}") as error:
        flags.parse(["train.py", f"--config={path}"])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "arguments", [["--config=no.py:a=1"], ["--config", "no.py"], ["-config=no.py"]]
)
def test_a_config_file_that_is_not_there_is_named_in_one_line(arguments):
    with pytest.raises(
        ValueError, match="^--config is 'no.py', which cannot be read; accepted"
    ) as error:
        flags.parse(["train.py", *arguments])
    assert len(str(error.value).splitlines()) == 1


def test_classes_can_be_named_on_the_command_line():
    config, *_ = parse("--config.data.positive_classes=('3', '8')")
    assert config_lib.resolve(config).data.positive_classes == ("3", "8")


def test_any_field_can_be_overridden_on_the_command_line():
    config, workdir, _ = parse(
        "--config.method.rho_start=0.9",
        "--config.data.prior=0.4",
        "--config.data.positive_classes=(1,2)",
        "--config.run.figures=false",
        "--workdir=somewhere",
    )
    resolved = config_lib.resolve(config)
    assert resolved.method.rho_start == 0.9
    assert resolved.data.prior == 0.4
    assert resolved.data.positive_classes == (1, 2)
    assert resolved.run.figures is False
    assert workdir == "somewhere"


@pytest.mark.parametrize(
    ("argument", "names"),
    [
        ("--config.method.rho_strat=0.9", ["rho_strat"]),
        ("--config.methods.rho_start=0.9", ["methods"]),
        ("--config.method.num_epochs=many", ["method.num_epochs is 'many'; accepted: a whole"]),
        ("--config.method.rho_start=x", ["method.rho_start is 'x'; accepted: a number"]),
        ("--config.run.figures=maybe", ["run.figures is 'maybe'; accepted: true or false"]),
        ("--config.method.num_epochs=1.5", ["method.num_epochs is '1.5'; accepted: a whole"]),
        ("--workdri=x", ["workdri"]),
        ("stray", ["stray"]),
    ],
)
def test_bad_command_line_is_one_value_error_naming_the_flag(argument, names):
    with pytest.raises(ValueError) as error:
        parse(argument)
    assert all(name in str(error.value) for name in names)


def test_a_config_without_arguments_says_so():
    path = REPOSITORY / "configs" / "lagam_digits.py"
    with pytest.raises(ValueError, match="'foo=1' is unknown; accepted keys: none"):
        flags.parse(["", f"--config={path}:foo=1"])


def test_the_hosts_of_a_cluster_must_be_described_whole():
    def refused(message, **fields):
        with pytest.raises(ValueError, match=message):
            config_lib.resolve(changed(run__distributed=True, **fields))

    refused("run.num_processes is 0; accepted", run__process_id=-7)
    for place in ("a", "a:", ":1", "a:b", "a:0", "a:65536", "a:-1", "a:1_0", "a:²"):
        refused(f"run.coordinator is '{place}'; accepted: 'HOST:PORT'", run__coordinator=place)
    refused("run.process_id is 2; accepted", run__process_id=2, run__num_processes=2)
    refused("run.coordinator is ''; accepted", run__process_id=0, run__num_processes=2)
    for place in ("a:1", "[::1]:65535"):  # of a known cluster
        config_lib.resolve(changed(run__distributed=True, run__coordinator=place))


@pytest.mark.parametrize(
    "field, value", [("num_processes", 2), ("process_id", 1), ("coordinator", "host:1")]
)
def test_a_cluster_is_described_only_where_the_run_is_distributed(field, value):
    with pytest.raises(ValueError, match=rf"run.{field} is {value!r}; .* while run.distributed"):
        config_lib.resolve(changed(**{f"run__{field}": value}))


@pytest.mark.parametrize("name", ["pu_mlc", "nnpu"])
def test_a_method_for_other_labels_is_not_compared(name):
    own = "nnpu" if name == "pu_mlc" else "pu_mlc"
    config = config_lib.default_config(own)
    config.run.compare = name
    with pytest.raises(ValueError, match=f"run.compare is '{name}'; accepted: methods for .*{own}"):
        config_lib.resolve(config)


def with_a_field(monkeypatch, default, value):
    """A configuration of a method that has one field more, `share`, with a value for it."""
    naive = methods.module("naive")
    published = naive.default_config

    def default_config():
        section = published()
        section.share = default
        return section

    monkeypatch.setattr(naive, "default_config", default_config)
    monkeypatch.setattr(config_lib, "_defaults", config_lib._defaults.__wrapped__)
    config = config_lib.default_config("naive")
    with config.ignore_type():
        config.method.share = value
    return config


@pytest.mark.parametrize(
    ("value", "taken"), [("auto", "auto"), (0.25, 0.25), ("0.25", 0.25), (2, 2.0)]
)
def test_a_new_field_takes_a_word_or_a_number_where_its_reference_says_so(
    monkeypatch, value, taken
):
    reference = ml_collections.FieldReference("auto", field_type=object)
    found = config_lib.resolve(with_a_field(monkeypatch, reference, value)).method.share
    assert found == taken and type(found) is type(taken)


@pytest.mark.parametrize("value", ["often", None, True])
def test_the_method_judges_what_else_such_a_field_is_given(monkeypatch, value):
    reference = ml_collections.FieldReference("auto", field_type=object)
    found = config_lib.resolve(with_a_field(monkeypatch, reference, value)).method.share
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("value", ["nan", float("inf"), pytest.param(10**400, id="large")])
def test_a_number_of_such_a_field_is_finite(monkeypatch, value):
    reference = ml_collections.FieldReference("auto", field_type=object)
    with pytest.raises(ValueError, match="method.share is .*; accepted: 'auto', or a finite"):
        config_lib.resolve(with_a_field(monkeypatch, reference, value))


@pytest.mark.parametrize("default", ["auto", ml_collections.FieldReference("auto")])
def test_a_field_of_words_takes_no_number(monkeypatch, default):
    assert config_lib.resolve(with_a_field(monkeypatch, default, "0.25")).method.share == "0.25"
    monkeypatch.undo()
    with pytest.raises(ValueError, match="method.share is 0.25; accepted: a value of type str"):
        config_lib.resolve(with_a_field(monkeypatch, default, 0.25))


def test_missing_config_file_and_missing_flag_are_explained():
    with pytest.raises(ValueError, match="nowhere.py"):
        flags.parse(["", "--config=configs/nowhere.py"])
    with pytest.raises(ValueError, match="usage"):
        flags.parse([""])


def test_comparison_keeps_the_shared_settings():
    config = config_lib.resolve(changed(method__num_epochs=7, method__learning_rate=0.3))
    other = config_lib.resolve(config_lib.to_compare(config, "naive"))
    assert (other.method.name, other.method.num_epochs) == ("naive", 7)
    assert other.method.learning_rate == 0.3
    assert other.data == config.data and other.model == config.model
    assert other.run.compare == ""


def test_a_method_that_is_compared_reports_the_epoch_of_its_own_rule():
    """Unless the run was given a rule: then all follow it."""
    config = config_lib.default_config("nnpu")
    config.data.num_validation = 100
    resolved = config_lib.resolve(config)
    assert resolved.run.selection == "last"
    rules = {"vpu": "vpu_risk", "lbe": "nnpu_risk", "dist_pu": "last"}
    for name, rule in rules.items():
        assert config_lib.resolve(config_lib.to_compare(resolved, name)).run.selection == rule
        beside = config_lib.to_compare(resolved, name, rule="proxy_auc")
        assert config_lib.resolve(beside).run.selection == "proxy_auc"


@pytest.mark.parametrize(("name", "value"), [("prior_method", "tice"), ("prior_epochs", 9)])
def test_how_to_estimate_is_refused_where_nothing_is_estimated(name, value):
    config = config_lib.default_config("nnpu")
    config.data[name] = value
    with pytest.raises(ValueError, match=f"data.{name} is {value!r}; accepted: .* is not 'auto'"):
        config_lib.resolve(config)
    config.data.prior = "auto"
    assert config_lib.resolve(config).data[name] == value


def test_fingerprint_ignores_the_folder_and_run_but_for_the_selection():
    base = config_lib.fingerprint(config_lib.resolve(changed()))
    assert base["run"]["selection"] == "last"
    same = config_lib.resolve(changed(run__stop_after_epoch=3, data__dir=os.sep))
    assert config_lib.fingerprint(same) == base
    rule = changed(run__selection="oracle", data__num_validation=9)
    last = changed(run__selection="last", data__num_validation=9)
    both = (config_lib.fingerprint(config_lib.resolve(x)) for x in (rule, last))
    found = config_lib.differences(*both)
    assert found == ["run.selection: 'oracle' there, 'last' here"]
    other = config_lib.fingerprint(config_lib.resolve(changed(method__rho_end=0.5)))
    assert config_lib.differences(base, other) == ["method.rho_end: 0.8 there, 0.5 here"]


def test_the_epochs_that_a_rule_chooses_among_stay_and_are_free_where_none_chooses():
    def differences(**changes):
        made = (changed(**changes, run__eval_every=every) for every in (3, 4))
        return config_lib.differences(
            *(config_lib.fingerprint(config_lib.resolve(x)) for x in made)
        )

    assert differences(data__num_validation=9, run__selection="last") == []
    said = ["run.eval_every: 3 there, 4 here"]
    assert differences(data__num_validation=9, run__selection="nnpu_risk") == said
    # LBE's first stage hands on a chosen epoch, where a part is held out.
    first_stage = config_lib.default_config("lbe")
    first_stage.run.eval_every = 3
    assert "eval_every" not in config_lib.fingerprint(first_stage)["run"]
    first_stage.data.num_validation = 9
    now = config_lib.fingerprint(first_stage)
    assert now["run"]["eval_every"] == 3
    older = config_lib.fingerprint(first_stage)
    del older["run"]["eval_every"]
    assert config_lib.stored_differences(dict(older), now) == []
    together = {"0": dict(older), "1": dict(older)}
    assert config_lib.stored_differences(together, {"0": now, "1": now}) == []
    other = config_lib.fingerprint(first_stage)
    other["run"]["eval_every"] = 4
    assert config_lib.stored_differences(other, now) == ["run.eval_every: 4 there, 3 here"]
    every = [
        changed(run__selection="oracle", data__num_validation=9, run__eval_every=x) for x in (0, 1)
    ]
    assert config_lib.fingerprint(every[0]) == config_lib.fingerprint(every[1])


def test_a_run_whose_files_were_moved_goes_on():
    def fingerprint(place, label="known.npy"):
        config = config_lib.default_config("nnpu")
        config.data.update({"source": "own_table", "path": f"{place}/rows.npy"})
        config.data.update({"test_path": f"{place}/test.npy", "label": label})
        return config_lib.fingerprint(config)

    assert fingerprint("/mnt/a", "/mnt/a/known.npy") == fingerprint("/mnt/b", "/mnt/b/known.npy")
    without = config_lib.default_config("nnpu")
    without.data.update({"source": "own_table", "path": "rows.csv", "label": "known"})
    found = config_lib.differences(config_lib.fingerprint(without), fingerprint("/mnt/a"))
    names = {text.partition(":")[0] for text in found}
    assert {"data.test_path", "data.label"} <= names
    # Those of earlier versions, in checkpoints, have the places themselves.
    older = fingerprint("/mnt/a")
    older["data"] |= {"test_path": "/mnt/a/test.npy", "label": "/mnt/a/known.npy", "dir": "/a"}
    assert config_lib.stored_differences(older, fingerprint("/mnt/b")) == []


def test_a_run_that_began_before_a_field_was_there_goes_on_while_it_changes_nothing():
    config = config_lib.default_config("nnpu")
    older = config.to_dict()
    for name in ("leave_out", "words", "split_seed", "train_split", "test_split"):
        del older["data"][name]
    del older["method"]["first_bias"]
    older = config_lib.fingerprint(config_lib.ml_collections.ConfigDict(older))
    assert config_lib.differences(older, config_lib.fingerprint(config)) == []
    config.data.split_seed, config.method.first_bias, config.data.words = 0, "prior", "plz"
    assert config_lib.differences(older, config_lib.fingerprint(config)) == [
        "data.split_seed: None there, 0 here",
        "data.words: None there, 'plz' here",
        "method.first_bias: None there, 'prior' here",
    ]


def test_a_method_is_built_of_saved_settings_that_lack_its_later_fields():
    later = {name for section, name, _ in config_lib._LATER if section == "method"}
    info, lacked = tiny.problem().info, set()
    for name in BINARY:
        config = ml_collections.ConfigDict(tiny.config(name).to_dict())
        fields = later.intersection(config.method)
        for field in fields:
            del config.method[field]
        lacked |= fields
        if fields:
            assert methods.build(ml_collections.FrozenConfigDict(config), info).stages
    assert lacked == later


@pytest.mark.parametrize("source", sources.NAMES)
def test_options_that_an_error_recommends_are_fields(source):
    name = "tfds_name" if source == "cifar100" else "label_set"
    data = data_section.defaults() | {"source": source, name: "fine"}
    with pytest.raises(ValueError, match=f"^data.{name} is 'fine', but source") as caught:
        data_section.check(ml_collections.ConfigDict(data))
    recommended = str(caught.value).partition("accepted: ")[2].split(", ")
    assert set(recommended) <= {*data_section.defaults(), "none"}


def test_the_splits_of_a_tfds_set_are_fields():
    data = config_lib.default_config("nnpu").data
    data.update({"source": "tfds", "tfds_name": "cifar10", "test_split": "train[80%:]"})
    data_section.check(data)
    given = data_section.source_options(data)
    assert given == {"tfds_name": "cifar10", "test_split": "train[80%:]"}
    assert sources.check("tfds", **given) == given
    data.source = "digits"
    with pytest.raises(ValueError, match="^data.tfds_name is 'cifar10', but source 'digits' has"):
        data_section.check(data)


def test_a_saved_configuration_may_lack_an_option_of_its_source():
    config = config_lib.default_config("nnpu")
    config.data.update({"path": "a.csv", "words": "plz"})
    assert data_section.source_options(config.data) == {"path": "a.csv", "words": "plz"}
    del config.data.words
    assert data_section.source_options(config.data) == {"path": "a.csv"}


def test_differences_takes_lists_for_tuples():
    assert config_lib.differences({"a": (1, 2)}, {"a": [1, 2]}) == []
    tree = ml_collections.ConfigDict({"a": {"b": 1}})
    assert config_lib.differences(tree.to_dict(), {"a": {}}) == ["a.b: 1 there, None here"]


def test_a_renamed_field_on_the_command_line_is_refused_with_its_new_name():
    argv = ["train.py", "--config=configs/pu_mlc_scene.py", "--config.method.lr_warm_share=0.2"]
    with pytest.raises(ValueError, match=r"accepted: method.pct_start=0.2$"):
        flags.parse(argv)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--config.num_epochs=6"],
            "^num_epochs is not a field .* cannot be '6'; accepted: config",
        ),
        (["--config.run.num_epochs=6"], r"; accepted: config\.method\.num_epochs, a field of that"),
        (["--config.method.seed=6"], r"; accepted: config\.seed, a field of that name in another"),
        (
            ["--data.path=a"],
            "^--data.path is not an option .*; accepted: --config.data.path=VALUE$",
        ),
        (
            ["--path=a"],
            r"^--path is not an option .*\(did you mean --config.data.path\?\); accepted",
        ),
        (["--workdri=a"], r"did you mean --workdir\?\); accepted: --config, --workdir, --help and"),
        (
            ["--config.data.prior=0.4", "--config.data.prior=0.5"],
            "^--config.data.prior is '0.4' and '0.5'; accepted: every option once",
        ),
        (["--workdir", "a", "--workdir=b"], "^--workdir is 'a' and 'b'; accepted: every option"),
    ],
)
def test_an_option_in_a_wrong_place_or_given_twice_is_refused_with_the_right_one(words, said):
    with pytest.raises(ValueError, match=said) as error:
        flags.parse(["train.py", "--config=configs/own_table.py", *words])
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(("section", "name"), [("data", "dir"), ("method", "batch_size")])
def test_a_field_of_another_section_is_refused_and_not_its_namesake(section, name):
    argv = ["train.py", "--config=configs/pu_mlc_scene.py", f"--config.{section}.{name}=2"]
    with pytest.raises(ValueError, match=f"^run.{name} is not a field .* cannot be '3'; accepted"):
        flags.parse([*argv, f"--config.run.{name}=3"])


@pytest.mark.parametrize(
    ("field", "right"),
    [
        ("data.holdoutt", "holdout"),
        ("model.image_sizes", "image_size"),
        ("run.eval_everyy", "eval_every"),
        ("method.num_epoch", "num_epochs"),
        ("metod.num_epochs", "method"),
    ],
)
def test_a_field_that_there_is_not_is_refused_with_those_that_there_are(field, right):
    argv = ["train.py", "--config=configs/lagam_digits.py", f"--config.{field}=3"]
    with pytest.raises(ValueError) as refused:
        flags.parse(argv)
    _, accepted = str(refused.value).split("it cannot be '3'; accepted: ")
    config = flags.parse(argv[:2])[0]
    section = config.get(field.partition(".")[0], config)
    assert accepted == ", ".join(sorted(section)) and right in accepted.split(", ")


def test_fields_without_a_configuration_ask_for_one():
    with pytest.raises(ValueError, match="^--config is missing; accepted: .*own_table"):
        flags.parse(["train.py", "--config.data.path=a.csv"])
