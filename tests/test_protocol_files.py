"""The constants of the authors' protocols, as the papers and their code state them.

Where the package's own choice stands in a protocol file (networks, batches that no paper states) it
is asserted too, so that nobody changes a measured protocol unseen.
"""

import pytest

from pujax.configs import (
    baseline,
    dist_pu,
    gradpu,
    impulses,
    nnpu,
    p3mix,
    pan,
    purl,
    puupl,
    vpu,
)
from pujax.configs.sweeps import gradpu_table1


def fields(config, names):
    """The values of dotted fields."""
    found = config.to_dict()
    values = {}
    for name in names:
        value = found
        for part in name.split("."):
            value = value[part]
        values[name] = list(value) if isinstance(value, tuple) else value
    return values


def check(config, expected):
    assert fields(config, expected) == expected


VEHICLES = [0, 1, 8, 9]
EVEN = [0, 2, 4, 6, 8]
# 1,000 labelled beside a U that is the whole training set.
CASE_CONTROL = {
    "data.num_labeled": 1000,
    "data.num_unlabeled": 0,
    "data.num_support": 0,
    "data.setting": "two_sample",
    "data.sampling": "uniform",
}


@pytest.mark.parametrize(
    ("method", "task", "rate", "batch_size"),
    [
        ("nnpu", "mnist", 1e-3, 30_000),
        ("nnpu", "cifar10", 1e-5, 500),
        ("upu", "mnist", 1e-3, 30_000),
        ("upu", "cifar10", 1e-5, 500),
        ("pusb", "mnist", 1e-5, 1000),
        ("pusb", "cifar10", 1e-5, 224),
    ],
)
def test_nnpu_and_its_kin_have_the_rates_and_batches_of_their_papers(
    method, task, rate, batch_size
):
    config = nnpu.get_config(f"method={method},task={task}")
    expected = CASE_CONTROL | {
        "data.source": task,
        "data.positive_classes": EVEN if task == "mnist" else VEHICLES,
        "data.scaling": "unit",
        "data.labeling": "pusb" if method == "pusb" else "scar",
        "model.name": "mlp" if task == "mnist" else "cnn13",
        "method.name": method,
        "method.learning_rate": rate,
        "method.batch_size": batch_size,
        "method.batching": "joint",
        "method.num_epochs": 100,
        "method.weight_decay": 0.005,
        "method.loss": "logistic" if method == "pusb" else "sigmoid",
    }
    if method == "nnpu":  # the negative part alone is what Algorithm 1 descends on
        expected |= {"method.keep_positive": False, "method.beta": 0.0, "method.gamma": 1.0}
    check(config, expected)
    assert config.model.options.to_dict() == ({"batch_norm": True} if task == "mnist" else {})


@pytest.mark.parametrize(("task", "classes"), [("mnist", [3]), ("cifar10", [0])])
def test_imbalanced_nnpu_takes_ten_of_p_and_500_of_u_for_200_epochs(task, classes):
    config = nnpu.get_config(f"method=imbalanced_nnpu,task={task}")
    expected = CASE_CONTROL | {
        "data.positive_classes": classes,
        "data.scaling": "unit",
        "method.num_epochs": 200,
        "method.batching": "separate",
        "method.positives_per_batch": 10,
        "method.batch_size": 510,
        "method.ascent": True,
    }
    check(config, expected)


@pytest.mark.parametrize(
    ("module", "argument"), [(p3mix, "variant=e"), (p3mix, "variant=c"), (pan, "")]
)
def test_p3mix_and_pan_train_on_all_images_of_cifar_10(module, argument):
    expected = {
        "data.source": "cifar10",
        "data.positive_classes": VEHICLES,
        "data.num_labeled": 1000,
        "data.num_support": 0,
        "data.num_validation": 0,
        "model.name": "cnn7",
        "method.threshold": "zero",
    }
    check(module.get_config(argument), expected)


@pytest.mark.parametrize(
    ("task", "classes", "labeled", "validation", "model", "rate", "weight"),
    [
        ("fashion_mnist", [1, 4, 7], 3000, 5000, "small_cnn", 3e-4, 0.3),
        ("cifar10", VEHICLES, 3000, 5000, "cnn7", 3e-5, 0.03),
        ("stl10", [0, 2, 3, 8, 9], 2250, 500, "cnn7", 1e-4, 0.3),
    ],
)
def test_vpu_has_the_rate_and_the_weight_of_each_of_its_sets(
    task, classes, labeled, validation, model, rate, weight
):
    expected = {
        "data.source": task,
        "data.positive_classes": classes,
        "data.num_labeled": labeled,
        "data.num_validation": validation,
        "model.name": model,
        "run.selection": "vpu_risk",
        "method.learning_rate": rate,
        "method.mixup_weight": weight,
        "method.num_epochs": 50,
        "method.steps_per_epoch": 30,
        "method.batching": "separate",
        "method.batch_size": 1000,
        "method.positives_per_batch": 0,  # as many of P as of U
        "method.beta1": 0.5,
        "method.beta2": 0.99,
        "method.lr_every": 20,
        "method.lr_factor": 0.5,
        "method.lr_resets": True,
        "method.mixup_alpha": 0.3,
    }
    check(vpu.get_config(f"task={task}"), expected)


@pytest.mark.parametrize(
    ("task", "classes", "model", "options"),
    [
        ("cifar10-1", VEHICLES, "cnn13", {"initializer": "he_normal"}),
        ("fashion_mnist", [0, 2, 4, 6], "mlp", {"batch_norm": True, "initializer": "he_normal"}),
        ("alzheimer", [0, 1, 3], "resnet50_v1", {}),
    ],
)
def test_dist_pu_has_its_positives_network_and_two_phases(task, classes, model, options):
    config = dist_pu.get_config(f"task={task}")
    expected = {
        "data.positive_classes": classes,
        "data.num_labeled": 1000,
        "data.setting": "two_sample",
        "data.sampling": "uniform",
        "model.name": model,
        "method.warmup_epochs": 60,
        "method.num_epochs": 120,
        "method.warmup_learning_rate": 5e-4,
        "method.warmup_weight_decay": 5e-3,
        "method.warmup_lr_floor": 0.0,
        "method.warmup_entropy_weight": 2e-3,
        "method.learning_rate": 5e-5,
        "method.weight_decay": 1e-3,
        "method.lr_floor": 0.7,
        "method.mixup_alpha": 6.0,
        "method.batch_size": 256,
        "method.batching": "joint",
    }
    check(config, expected)
    assert config.model.options.to_dict() == options


@pytest.mark.parametrize("data", ["a9a", "newsgroups"])
@pytest.mark.parametrize("prior", ["0.3", "0.7"])
def test_purl_has_the_papers_sizes(data, prior):
    is_text = data == "newsgroups"
    expected = {
        "data.source": data,
        "data.class_prior": float(prior),
        # 50 and 200 of them are what the method holds out.
        "data.num_labeled": 1050,
        "data.num_unlabeled": 2200,
        "data.setting": "two_sample",
        "model.name": "mlp",
        "model.options.hidden": [30, 10] if is_text else [60, 20],
        "model.options.batch_norm": True,
        "method.validation_positives": 50,
        "method.validation_unlabeled": 200,
        "method.positives_per_batch": 100,
        "method.classifier_batch_size": 3000,
        "method.representation": "purl",
        "method.prior_points": "training",
        "method.optimizer": "adagrad" if is_text else "adam",
        "method.learning_rate": 1e-2 if is_text else 1e-3,
    }
    config = purl.get_config(f"data={data},prior={prior}")
    check(config, expected)
    epochs = config.method.num_epochs - config.method.representation_epochs
    assert epochs == (300 if is_text else 200)


@pytest.mark.parametrize(
    ("task", "classes", "beta_max", "alpha", "epochs", "model", "options"),
    [
        ("mnist", [1, 3, 5, 7, 9], 30.0, 0.2, 100, "mlp", {}),
        ("fashion_mnist", EVEN, 10.0, 0.2, 100, "mlp", {}),
        (
            "cifar10",
            VEHICLES,
            1.0,
            0.1,
            200,
            "cnn13",
            {"batch_norm": False, "initializer": "he_normal"},
        ),
    ],
)
def test_gradpu_has_the_weights_of_each_of_its_sets(
    task, classes, beta_max, alpha, epochs, model, options
):
    config = gradpu.get_config(f"task={task},labeled=3000")
    expected = {
        "data.source": task,
        "data.positive_classes": classes,
        "data.num_labeled": 3000,
        "data.num_validation": 500,
        "data.scaling": "unit",
        "model.name": model,
        "method.alpha": alpha,
        "method.beta_max": beta_max,
        "method.num_epochs": epochs,
        "method.learning_rate": 1e-3,
        "method.lr_schedule": "exponential",
        "method.lr_floor": 0.1,
        "method.weight_decay": 5e-4,
        "method.batch_size": 250,
    }
    check(config, expected)
    assert config.model.options.to_dict() == options


@pytest.mark.parametrize(
    ("method", "rate"), [("naive", 1e-3), ("upu", 1e-4), ("nnpu", 4e-4), ("pusb", 4e-4)]
)
def test_the_methods_beside_gradpu_have_their_rates_and_its_pixels(method, rate):
    for task, epochs in (("mnist", 100), ("cifar10", 200)):
        expected = {
            "data.scaling": "unit",
            "method.learning_rate": rate,
            "method.num_epochs": epochs,
            "method.lr_schedule": "exponential",
        }
        check(gradpu.get_config(f"task={task},method={method}"), expected)
    vpu_there = {"data.scaling": "unit", "method.learning_rate": 3e-5, "method.mixup_weight": 0.03}
    check(gradpu.get_config("task=cifar10,method=vpu"), vpu_there)


@pytest.mark.parametrize("task", ["mnist", "fashion_mnist", "cifar10"])
def test_supervised_beside_gradpu_has_the_labelled_positives_alone(task):
    expected = {
        "method.positives": "labeled",
        "method.weighting": "balanced",
        "method.loss": "logistic",
    }
    check(gradpu.get_config(f"task={task},method=supervised"), expected)


def test_the_rows_of_gradpus_table_1_that_are_not_calibrated_have_the_literal_risk():
    found = {
        (cell.row, cell.config.method.calibration)
        for cell in gradpu_table1.get_plan().cells
        if cell.config.method.name in ("upu", "nnpu")
    }
    assert found == {
        ("uPU", "auto"),
        ("uPU, not calibrated", "none"),
        ("nnPU", "auto"),
        ("nnPU, not calibrated", "none"),
    }


@pytest.mark.parametrize(
    ("task", "classes", "model"),
    [("cifar10-1", VEHICLES, "cnn13"), ("fashion_mnist", EVEN, "mlp")],
)
@pytest.mark.parametrize("labeled", [1000, 3000])
def test_puupl_chooses_its_epoch_by_the_proxy_auc_of_5000_images(task, classes, model, labeled):
    expected = CASE_CONTROL | {
        "data.positive_classes": classes,
        "data.num_labeled": labeled,
        "data.num_validation": 5000,
        "model.name": model,
        "run.selection": "proxy_auc",
    }
    config = puupl.get_config(f"task={task},labeled={labeled}")
    check(config, expected)
    named = {"initializer": "he_normal"} | ({"batch_norm": True} if model == "mlp" else {})
    assert config.model.options.to_dict() == named
    if labeled == 3000:
        assert puupl.get_config(f"task={task}").to_dict() == config.to_dict()


@pytest.mark.parametrize(
    ("row", "tau_plus", "loss", "labels", "head", "pretraining"),
    [
        ("impulses", 0.1, "imbalanced_nnpu", "pu", "linear", 100),
        ("simclr", 0.0, "bce", "pu", "linear", 100),
        ("debiased", 0.1, "bce", "pu", "linear", 100),
        ("contrastive_nnpu", 0.0, "nnpu", "pu", "linear", 100),
        ("contrastive_imbnnpu", 0.0, "imbalanced_nnpu", "pu", "linear", 100),
        ("debiased_nnpu", 0.1, "nnpu", "pu", "linear", 100),
        ("debiased_wbce", 0.1, "weighted_bce", "true", "linear", 100),
        ("imbnnpu", 0.1, "imbalanced_nnpu", "pu", "finetune", 0),
        ("supervised_wbce", 0.1, "weighted_bce", "true", "finetune", 0),
    ],
)
def test_every_row_of_impulses_tables_has_its_loss_and_correction(
    row, tau_plus, loss, labels, head, pretraining
):
    expected = {
        "data.scaling": "unit",
        "model.name": "resnet50_v1",
        "model.options.stem": "imagenet",
        "model.image_size": 224,
        "method.temperature": 0.5,
        "method.tau_plus": tau_plus,
        "method.head_loss": loss,
        "method.labels": labels,
        "method.head": head,
        "method.pretrain_epochs": pretraining,
    }
    check(impulses.get_config(f"row={row}"), expected)
    at_32 = {"model.options.stem": "cifar", "model.image_size": 0, "data.scaling": "unit"}
    check(impulses.get_config(f"row={row},size=32"), at_32)


@pytest.mark.parametrize("task", ["digits", "mnist", "cifar10-1", "a9a", "mushrooms"])
def test_gradpu_has_the_pixels_of_its_penalty_on_every_task_of_images(task):
    is_table = task in ("a9a", "mushrooms")
    check(
        baseline.get_config(f"method=gradpu,task={task}"),
        {"data.scaling": "standard" if is_table else "unit"},
    )
    check(baseline.get_config(f"method=nnpu,task={task}"), {"data.scaling": "standard"})
