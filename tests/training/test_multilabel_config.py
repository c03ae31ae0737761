"""The configurations of PU-MLC: what they choose, and that they can be built."""

import pathlib

import pytest

from pujax import methods
from pujax.configs import pu_mlc
from pujax.configs.sweeps import pu_mlc_small
from pujax.sweep import plan as plan_lib
from pujax.training import config as config_lib
from pujax.training import method_setup
from pujax.training.config import flags
from tests import tiny

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TABLES = ("scene", "yeast", "emotions")


def parsed(name, argument="", *more):
    """The resolved configuration of a file in `configs/` with an argument."""
    path = REPOSITORY / "configs" / f"{name}.py"
    colon = f":{argument}" if argument else ""
    return config_lib.resolve(flags.parse(["", f"--config={path}{colon}", *more])[0])


MULTILABEL = ("pu_mlc", "assume_negative", "partial_bce", "asymmetric", "multilabel_supervised")


def test_the_multilabel_configs_offer_all_such_methods():
    assert set(MULTILABEL) == {name for name in methods.names() if methods.is_multilabel(name)}


@pytest.mark.parametrize("method", MULTILABEL)
@pytest.mark.parametrize("data", TABLES)
def test_every_method_is_built_for_a_table(data, method):
    config = parsed("pu_mlc", f"data={data},method={method}")
    assert (config.method.name, config.data.source) == (method, "multilabel")
    assert method_setup.build(config, tiny.multilabel_problem(rows=True), tiny.mesh()).method.stages


@pytest.mark.parametrize(
    ("data", "crops"), [("voc5", (64, 56, 48, 40)), ("coco128", (96, 84, 72, 60))]
)
def test_every_method_takes_images(data, crops):
    for method in MULTILABEL:
        assert parsed("pu_mlc", f"data={data},method={method}").method.crop_sizes == crops


@pytest.mark.thorough
def test_the_network_for_images_takes_their_crops():
    problem = tiny.multilabel_problem(size=64)
    made = method_setup.build(parsed("pu_mlc", "data=voc5"), problem, tiny.mesh())
    assert made.method.stages[0].batching.crop_sizes == (64, 56, 48, 40)


def test_your_own_images_are_cropped_as_the_published_ones():
    config = parsed("pu_mlc", "data=own_images")
    assert config.method.crop_sizes == (256, 224, 192, 160, 128)  # of a load_size of 256
    assert (config.model.name, config.model.options.width) == ("resnet18_v1", 64)
    assert parsed("pu_mlc", "data=own_table").model.name == "mlp"


@pytest.mark.parametrize("metric", ["mean_average_precision", "overall_f1", "class_f1"])
@pytest.mark.parametrize("part", ["ratios", "rule", "choice", "gammas", "risk", "images"])
def test_the_plan_of_the_small_sets_resolves(part, metric):
    plan = pu_mlc_small.get_plan(f"part={part},metric={metric},folder=somewhere")
    plan_lib.check(plan)
    assert plan.metric == metric
    for cell in plan.cells:
        config = config_lib.resolve(cell.config)
        assert config.data.dir.startswith("somewhere/")
        assert f"{100 * config.data.known_ratio:.0f} %" in cell.column


def test_the_rule_is_measured_at_every_ratio_and_negatives_where_many_are_known():
    cells = pu_mlc_small.get_plan("part=rule,folder=somewhere").cells
    methods_of = [config_lib.resolve(cell.config).method for cell in cells]
    assert {method.gamma for method in methods_of} == {"auto"}
    ratios = [
        cell.config.data.known_ratio
        for cell, method in zip(cells, methods_of, strict=True)
        if method.known_negatives
    ]
    assert len(cells) == 45 and sorted(set(ratios)) == [0.6, 0.7, 0.8, 0.9, 1.0]
    fixed = [
        config_lib.resolve(cell.config).method
        for cell in pu_mlc_small.get_plan("part=ratios,folder=somewhere").cells
    ]
    assert {m.gamma for m in fixed if m.name == "pu_mlc"} == {0.5}


@pytest.mark.parametrize(
    ("text", "value"), [("0.25", 0.25), ("2", 2.0), ("auto", "auto"), ("'auto'", "auto")]
)
def test_gamma_is_a_word_or_a_number_on_the_command_line(text, value):
    config = parsed("pu_mlc", "data=scene", f"--config.method.gamma={text}")
    assert config.method.gamma == value and type(config.method.gamma) is type(value)


@pytest.mark.parametrize("value", ["often", None, True, float("nan"), (0.5,), -0.1])
def test_a_gamma_that_is_neither_is_named(value):
    config = pu_mlc.get_config("data=scene")
    config.method.gamma = value
    accepted = "a finite" if value != value else r"a number in \[0, inf\)"
    with pytest.raises(ValueError, match=f"method.gamma is .*; accepted: 'auto', or {accepted}"):
        methods.build(config_lib.resolve(config), tiny.multilabel_problem().info)


def test_a_sweep_sets_gamma_as_text():
    plan = pu_mlc_small.get_plan("part=rule,folder=somewhere")
    (cell, *_) = plan_lib.override(plan, ["method.gamma=0.75"]).cells
    assert config_lib.resolve(cell.config).method.gamma == 0.75


@pytest.mark.parametrize("switch", ["on", "off"])
def test_multilabel_configs_switch_lgconv(switch):
    for name, data in (("pu_mlc", "voc5"), ("pu_mlc_voc", "voc"), ("pu_mlc_voc", "coco")):
        config = parsed(name, f"data={data},lgconv={switch}")
        assert config.model.options.lgconv == (switch == "on")


def test_the_scene_config_hides_nine_tenths_and_compares():
    config = parsed("pu_mlc_scene")
    assert (config.data.known_ratio, config.model.name) == (0.1, "mlp")
    for other in config_lib.compared_methods(config.run):
        compared = config_lib.resolve(config_lib.to_compare(config, other)).method
        assert (compared.name, compared.num_epochs) == (other, config.method.num_epochs)
        assert compared.average_decay == config.method.average_decay


@pytest.mark.parametrize(
    ("data", "published"),
    [
        (
            "voc",
            {
                **{"gamma": 0.85, "alpha": 2.0, "learning_rate": 4e-5, "num_epochs": 56},
                **{"average_decay": 0.991, "batch_size": 90},
            },
        ),
        (
            "coco",
            {
                **{"gamma": 0.55, "alpha": 1.0, "learning_rate": 1e-4, "num_epochs": 41},
                **{"average_decay": 0.9997, "batch_size": 70},
            },
        ),
    ],
)
def test_the_voc_and_coco_configs_hold_the_published_settings(data, published):
    # pu_mlc.md sections 2.5, 4.4, 5 and 6; the batch is that of two GPUs, each with its statistics.
    config = parsed("pu_mlc_voc", f"data={data}", "--config.data.known_ratio=0.1")
    published |= {
        **{"optimizer": "adam", "weight_decay": 1e-4, "lr_schedule": "one_cycle"},
        **{"lr_cycle_epochs": 80, "pct_start": 0.2, "base_momentum": 0.85, "max_momentum": 0.95},
        **{"mixup_weight": 1.0, "mixup_alpha": 0.3, "detach_targets": False, "num_groups": 2},
        **{"frozen_stages": -1, "freeze_norm": "auto", "flip": True, "augment": True},
        **{"crop_sizes": (512, 448, 384, 320, 256)},
    }
    assert {name: config.method[name] for name in published} == published
    fields = config.data
    assert (fields.image_size, fields.load_size, fields.known_seed) == (448, 512, 0)
    assert (fields.known_ratio, config.model.name) == (0.1, "resnet101_v1")
    assert config.run.threshold == 0.5


@pytest.mark.parametrize("method", MULTILABEL)
def test_the_voc_config_resolves_with_every_argument(method):
    argument = f"method={method},head=semantic_graph,precision=bfloat16"
    config = parsed("pu_mlc_voc", argument, "--config.method.word_vectors=words.npy")
    assert (config.method.head, config.method.word_vectors) == ("semantic_graph", "words.npy")
    assert (config.method.name, config.model.dtype) == (method, "bfloat16")


@pytest.mark.parametrize(
    ("name", "argument", "said"),
    [
        ("pu_mlc", "data=voc", "voc"),
        ("pu_mlc", "method=nnpu", "nnpu"),
        ("pu_mlc_voc", "data=scene", "scene"),
        ("pu_mlc_voc", "head=max", "max"),
        ("pu_mlc_scene", "data=yeast", "data"),
    ],
)
def test_a_bad_argument_of_a_multilabel_config_is_named(name, argument, said):
    with pytest.raises(ValueError, match=f"{said}.*accepted"):
        parsed(name, argument)
