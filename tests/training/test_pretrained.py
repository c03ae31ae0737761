"""`init_from`: an encoder that one run leaves starts another, of any method."""

import json
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from pujax import methods
from pujax.models import encoder as encoder_lib
from pujax.prior_study import __main__ as prior_study_command
from pujax.prior_study import heads as prior_study_heads
from pujax.training import config as config_lib
from pujax.training import (
    experiment,
    init_from,
    method_setup,
    run_state,
    sharding,
    train_step,
)
from pujax.training.seed_axis import Member
from tests import tiny

pytestmark = pytest.mark.usefixtures("one_device")

# Those for several labels share one start: see `test_multilabel_run`.
IMAGE_METHODS = tuple(
    name
    for name in methods.names()
    if name not in {"purl", *tiny.SAME_STEP}  # those begin as the method whose step they share
    and methods.has_network(name)
    and not methods.is_multilabel(name)
)


def digits_config(method="impulses", *, model="small_cnn", **changes):
    """A run of seconds on real images."""
    config = config_lib.default_config(method)
    config.data.update({"source": "digits", "num_labeled": 60})
    config.model.name = model
    small_cnn = {"channels": (4, 8, 8), "hidden": (16,)}
    config.model.options.update(
        small_cnn if model == "small_cnn" else {"width": 4, "stage_sizes": (1, 1)}
    )
    small = {"num_epochs": 2, "pretrain_epochs": 1, "batch_size": 256, "head_batch_size": 256}
    config.method.update({k: v for k, v in small.items() if k in config.method})
    config.method.update(changes)
    config.run.update({"figures": False, "eval_every": 2})
    return config


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run."""
    folder = str(tmp_path_factory.mktemp("runs") / "pretrained")
    experiment.run(digits_config(), folder)
    return folder


def saved(folder):
    return encoder_lib.load(f"{folder}/{init_from.FILE}")


def test_a_run_leaves_its_encoder_and_says_of_what(finished):
    encoder, description = saved(finished)
    assert description["model"] == "small_cnn"
    assert description["options"] == {"channels": [4, 8, 8], "hidden": [16]}
    assert description["input_shape"] == [8, 8, 1] and description["dataset"] == "digits"
    assert encoder.params["conv1"]["kernel"].shape == (3, 3, 1, 4)


def test_a_head_on_a_saved_encoder_leaves_it_as_it_was_and_needs_no_pretraining(finished, tmp_path):
    config = digits_config(pretrain_epochs=0, num_epochs=3)
    config.init_from = finished
    summary = experiment.run(config, str(tmp_path / "head"))
    assert summary["num_epochs"] == 3
    tiny.assert_same(saved(tmp_path / "head")[0], saved(finished)[0])


@tiny.by_kind(IMAGE_METHODS, "nnpu")
def test_every_method_starts_from_it(name, finished):
    encoder, _ = saved(finished)
    data = tiny.problem(size=8)._replace(encoder=encoder)
    options = {"channels": (4, 8, 8), "hidden": (16,)}
    changes = {"calibration_meta": False} if name == "self_pu" else {}
    if name == "gradpu":  # which takes no batch norm
        options["batch_norm"] = False
        encoder = plain_encoder(data._replace(encoder=None), options)
        data = data._replace(encoder=encoder)
    config = tiny.config(name, options=options, **changes)
    built = method_setup.build(config, data, tiny.mesh())
    stage = built.method.stages[0]
    arrays = sharding.replicate(built.data.training_data(), tiny.mesh())
    state = train_step.init_state(stage, jax.random.key(0), None, arrays, tiny.mesh())
    kernel = encoder.params["conv2"]["kernel"]
    found = [
        leaf
        for leaf in jax.tree.leaves(state)
        if leaf.shape[-4:] == kernel.shape
        and np.array_equal(leaf.reshape(-1, *kernel.shape)[0], kernel)
    ]
    assert found, "no network of the state starts from the encoder"


def plain_encoder(data, options):
    """One that pretraining leaves without batch norm."""
    config = tiny.config("impulses", options=options)
    method, carry = tiny.train_steps(config, data, steps=1)
    return method.encoder(carry.state)


def test_inputs_are_normalised_as_in_the_run_that_left_the_encoder(finished):
    config = digits_config("nnpu")
    config.init_from, config.data.scaling = finished, "unit"
    config = config_lib.resolve(config)
    data = init_from.attach(config, experiment.load_data(config))
    there = saved(finished)[1]
    assert data.info.std == tuple(there["std"]) != (1.0,)
    assert data.info.mean == tuple(there["mean"])


def test_what_a_run_trains_on_is_written_without_its_encoder_too(tmp_path):
    data = tiny.problem()
    found = []
    for name, encoder in (
        ("scratch", None),
        ("started", encoder_lib.Encoder({"a": np.ones(2)}, {})),
    ):
        folder = tmp_path / name
        folder.mkdir()
        setup = SimpleNamespace(config=tiny.config("naive"))
        member = Member(setup, data._replace(encoder=encoder), str(folder))
        run_state.Run.describe(SimpleNamespace(writers=[None], members=[member]))
        found.append(json.loads((folder / run_state.DATA_FILE).read_text()))
    scratch, started = found
    assert scratch["examples"] == started["examples"] == scratch["digest"] == data.digest()
    assert started["digest"] != started["examples"]


def test_the_seed_may_stand_in_the_name_of_the_folder(finished, tmp_path):
    (tmp_path / "seed3").symlink_to(finished)
    config = digits_config("nnpu")
    config.seed, config.init_from = 3, str(tmp_path / "seed{seed}")
    data = init_from.attach(config, experiment.load_data(config_lib.resolve(config)))
    tiny.assert_same(data.encoder, saved(finished)[0])


def test_another_architecture_is_named_before_anything_is_written(finished, tmp_path):
    def refused(config, message):
        config.init_from = finished
        with pytest.raises(ValueError, match=message):
            experiment.run(config, str(tmp_path / "never"))
        assert not (tmp_path / "never").exists()

    refused(digits_config(model="resnet_small"), "model.name 'small_cnn', .* 'resnet_small'")
    wider = digits_config()
    wider.model.options.channels = (4, 8, 16)
    refused(wider, r"model.options .*\[4, 8, 8\].* \[4, 8, 16\]")
    larger = digits_config()
    larger.model.image_size = 16  # this network's dense layer depends on the size
    refused(larger, r"params/dense1/kernel of the saved encoder is \[32, 16\], .* \[128, 16\]")


def test_the_saved_network_may_be_asked_for_by_name(finished):
    config = config_lib.default_config("lagam")
    config.init_from, config.model.name = finished, config_lib.SAVED
    model = init_from.resolve_model(config_lib.resolve(config)).model
    assert (model.name, model.options.to_dict()) == (
        "small_cnn",
        {"channels": (4, 8, 8), "hidden": (16,)},
    )
    config.model.image_size = 12
    assert init_from.resolve_model(config_lib.resolve(config)).model.image_size == 12
    config.model.options.hidden = (32,)
    with pytest.raises(
        ValueError, match="model.options is .* accepted: none with model.name='saved'"
    ):
        init_from.resolve_model(config_lib.resolve(config))
    config.model.options = {}
    config.init_from = ""
    with pytest.raises(ValueError, match="model.name is 'saved'; accepted: only with init_from"):
        config_lib.resolve(config)


def test_dropout_is_the_own_choice_of_a_run(tmp_path):
    first = digits_config("nnpu", model="mlp")
    first.model.options = {"hidden": (8,), "dropout": 0.5}
    first.method.num_epochs = 1
    there = str(tmp_path / "first")
    experiment.run(config_lib.resolve(first), there)

    def resolved(name, model, options):
        config = digits_config(name, model=model)
        config.model.options, config.init_from = options, there
        config = init_from.resolve_model(config_lib.resolve(config))
        assert init_from.attach(config, experiment.load_data(config)).encoder is not None
        return config.model.options.to_dict()

    assert resolved("nnpu", "mlp", {"hidden": (8,)}) == {"hidden": (8,)}
    assert resolved("cvir", config_lib.SAVED, {}) == {"hidden": (8,)}
    own = resolved("nnpu", config_lib.SAVED, {"dropout": 0.25})
    assert own == {"hidden": (8,), "dropout": 0.25}


def test_a_folder_without_an_encoder_is_named(tmp_path):
    config = digits_config()
    config.init_from = str(tmp_path)
    with pytest.raises(ValueError, match=f"init_from is '{tmp_path}', which holds no encoder.npz"):
        experiment.run(config, str(tmp_path / "never"))


@pytest.mark.thorough
def test_transfer_between_image_sizes(finished, tmp_path):
    """Another size of the same images, resized on the device, and a network that takes any size."""
    config = digits_config(model="resnet_small", num_epochs=1)
    first = str(tmp_path / "first")
    experiment.run(config, first)
    config = digits_config(model="resnet_small", pretrain_epochs=0, num_epochs=1)
    config.init_from, config.model.image_size = first, 12
    summary = experiment.run(config, str(tmp_path / "second"))
    assert np.isfinite(summary["test"]["auc"])
    tiny.assert_same(saved(tmp_path / "second")[0], saved(first)[0])


@pytest.mark.thorough
def test_the_prior_study_runs_on_it(finished, capsys):
    arguments = ["prior_study", finished, "--factors=0.5,1", "--seeds=2", "--epochs=2"]
    assert prior_study_command.main([*arguments, f"--beside={finished}"]) == 0
    with open(f"{finished}/prior_study/study.json") as file:
        found = json.load(file)
    assert np.shape(found["auc"]) == (2, 2, 2)
    with open(f"{finished}/config.json") as file:
        config = config_lib.resolve(config_lib.ml_collections.ConfigDict(json.load(file)))
    prior = experiment.load_data(config).info.prior_unlabeled
    np.testing.assert_allclose(found["priors"], [prior / 2, prior])


@pytest.mark.thorough
@pytest.mark.parametrize("rate", ["auto", 0.02])
def test_the_prior_study_has_the_rate_of_a_linear_head(finished, tmp_path, monkeypatch, rate):
    folder = shutil.copytree(finished, tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    config["method"] |= {"head_learning_rate": rate, "head": "finetune"}
    (folder / "config.json").write_text(json.dumps(config))
    seen = {}
    monkeypatch.setattr(
        prior_study_heads, "study", lambda features, *_, **given: seen.update(given, f=features)
    )

    prior_study_heads.of_run(str(folder))

    wanted = 3e-4 * 2048 / seen["f"].shape[1] if rate == "auto" else rate
    assert seen["learning_rate"] == pytest.approx(wanted)


@pytest.mark.thorough
def test_the_prior_study_of_a_run_that_estimated_its_prior(tmp_path):
    config = digits_config("naive")
    config.data.prior, config.data.prior_epochs = "auto", 1
    config.data.prior_method = "best_bin"
    folder = str(tmp_path / "auto")
    experiment.run(config, folder)
    arguments = ["prior_study", folder, "--factors=0.5", "--seeds=1", "--epochs=1"]
    assert prior_study_command.main(arguments) == 0
    with open(f"{folder}/prior_study/study.json") as file:
        believed = json.load(file)["priors"]
    with open(f"{folder}/summary.json") as file:
        np.testing.assert_allclose(believed, [json.load(file)["prior_unlabeled"] / 2])
