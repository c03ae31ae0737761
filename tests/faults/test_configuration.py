"""Configurations that cannot be are refused in one line, whatever they hold."""

import contextlib
import copy
import pathlib

import ml_collections
import pytest
from hypothesis import strategies as st

from pujax import methods, models
from pujax.methods.purl import ratio_stage
from pujax.training import config as config_lib
from pujax.training import experiment, method_setup
from pujax.training.config import flags
from tests import tiny
from tests.faults import fuzzing

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def parsed(*arguments, file="baseline.py"):
    return flags.parse(["train.py", f"--config={REPOSITORY / 'configs' / file}", *arguments])[0]


def refusal(function, *args, **kwargs):
    with pytest.raises(ValueError) as error:
        function(*args, **kwargs)
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("method.num_epochs", 99999999999999999999),
        ("method.num_epochs", 2**31),
        ("method.lr_drops", (2**31,)),
        ("method.learning_rate", 10**400),
        ("method.learning_rate", 1e39),  # more than single precision holds
        ("data.prior", 10**400),
        ("seed", -(10**30)),
        ("method", None),
        ("method.name", {"a": {}}),  # which prints as several lines
        ("run", 3),
        ("data", [1]),
        ("model", "mlp"),
        ("model.options", 3),
        ("model.options", None),
        ("model.options.channels", (1.5, 2, 3)),
        ("model.options.channels", (True, 2, 3)),
        ("model.options.channels", ()),
        ("model.options.hidden", (2**40,)),
        ("model.options.width", 16),  # of another network
        ("model.image_size", 1),
        ("run.eval_batch_size", 2**30),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(field, value):
    tree = config_lib.default_config("lagam").to_dict()
    *sections, last = field.split(".")
    place = tree
    for name in sections:
        place = place[name]
    place[last] = value
    config = ml_collections.ConfigDict(tree)
    message = refusal(config_lib.resolve, config)
    assert message.startswith(f"{field} is ") and "accepted" in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embedding_dim": 10**9}, "embedding_dim is 1000000000; accepted: .* up to 65536"),
        ({"lr_drops": (60, 10)}, r"method.lr_drops is \(60, 10\); accepted: .*each later"),
        ({"lr_drops": (5, 5)}, r"method.lr_drops is \(5, 5\); accepted"),
        ({"lr_drops": (-1,)}, r"method.lr_drops is \(-1,\); accepted"),
        ({"neighbors_after_epoch": -1}, "method.neighbors_after_epoch is -1; accepted"),
        ({"padding": 1000}, "method.padding is 1000; accepted: 0 to 7 pixels"),
        ({"padding": 8}, "method.padding is 8; accepted: 0 to 7 pixels"),
        ({"num_epochs": 2**31 - 1}, "method.num_epochs is 2147483647, which makes .* steps"),
    ],
)
def test_a_setting_that_does_not_go_with_the_data_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        method_setup.build(tiny.config("lagam", **changes), tiny.problem(), tiny.mesh())


def test_drops_in_order_are_accepted():
    setup = method_setup.build(
        tiny.config("naive", lr_drops=(0, 1, 9)), tiny.problem(), tiny.mesh()
    )
    assert setup.method.stages


def test_purl_says_when_it_holds_out_less_than_it_was_told_to(caplog):
    settings = ml_collections.ConfigDict({"validation_positives": 50, "validation_unlabeled": 200})
    assert ratio_stage.num_held_out(settings, tiny.problem().info) == (8, 30)
    config = tiny.config("purl", model="mlp", options={"hidden": (4,)})
    method_setup.build(config, tiny.table_problem(), tiny.mesh())
    said = [record.getMessage() for record in caplog.records]
    assert any("validation_positives is 50, and 8 are held out: a fifth of 40" in x for x in said)


def test_an_option_that_the_file_does_not_list_is_set_on_the_command_line():
    config = parsed(
        "--config.model.options.channels=(4, 8, 8)",
        "--config.model.options.initializer=he_normal",
        "--config.model.options.batch_norm",
        "False",
    )
    resolved = config_lib.resolve(config).model.options.to_dict()
    given = {"channels": (4, 8, 8), "initializer": "he_normal", "batch_norm": False}
    assert resolved == given
    method_setup.build(config_lib.resolve(config), experiment.load_data(config), tiny.mesh())


def test_an_option_may_be_of_a_network_that_the_command_line_names():
    arguments = ["--config.model.options.width=8", "--config.model.name=resnet18"]
    assert config_lib.resolve(parsed(*arguments)).model.options.width == 8


def test_an_option_that_the_file_lists_can_be_changed():
    config = parsed("--config.model.options.channels=[4,8,8]", file="own_folder.py")
    assert models.check_options("small_cnn", config.model.options.to_dict())["channels"] == (
        4,
        8,
        8,
    )


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            "--config.model.options.foo=1",
            "model.options.foo is no option of 'small_cnn'; accepted:",
        ),
        ("--config.model.options.width=8", "model.options.width is no option of 'small_cnn'"),
        ("--config.model.options.channels=(1.5,2,3)", r"model.options.channels is \(1.5, 2, 3\)"),
        ("--config.model.options.channels=many", "model.options.channels is 'many'; accepted"),
        ("--config.model.options.channels=", "model.options.channels is ''; accepted"),
        (
            "--config.model.options.channels",
            "command line: .*accepted: --config.*NAME",
        ),
        ("--config.model.options.=3", "command line: .*accepted: --config.*NAME"),
        ("--config.model.options=3", "config.model.options"),
        ("--config.method=None", "config.method"),
    ],
)
def test_a_wrong_option_on_the_command_line_is_refused_by_name(argument, message):
    with pytest.raises(ValueError, match=message) as error:
        parsed(argument)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("made", ["None", "3", "{}", "[]", "ml_collections.ConfigDict()"])
def test_a_file_that_makes_no_configuration_is_refused(tmp_path, made):
    path = tmp_path / "made.py"
    path.write_text(f"import ml_collections\ndef get_config():\n    return {made}\n")

    def run():
        config_lib.resolve(flags.parse(["train.py", f"--config={path}"])[0])

    refusal(run)


GONE = object()

# What a configuration may hold by mistake, beside what it should.
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.sampled_from([2**31 - 1, 2**31, 10**20, -(10**20), 10**400]),
    st.floats(),
    st.sampled_from(["", "auto", "last", "a/b", "1", "\0", "score:0", "top:1e999", "saved"]),
    st.text(max_size=4),
    st.binary(max_size=2),
)
_VALUES = st.one_of(
    _SCALARS,
    st.lists(_SCALARS, max_size=3),
    st.lists(_SCALARS, max_size=3).map(tuple),
    st.dictionaries(st.text("abc.", min_size=1, max_size=3), _SCALARS, max_size=2),
)


def fields(tree, path=()):
    """The path of every field and section."""
    for name, value in tree.items():
        yield (*path, name)
        if isinstance(value, dict):
            yield from fields(value, (*path, name))


NAMES = methods.names()
_TREES = {name: config_lib.default_config(name).to_dict() for name in NAMES}
_OPTIONS = [("model", "options", name) for name in ("channels", "hidden", "width", "x", "stem")]
_PATHS = {name: sorted(fields(tree)) + _OPTIONS for name, tree in _TREES.items()}


def _words(tree):
    for value in tree.values():
        if isinstance(value, dict):
            yield from _words(value)
        elif isinstance(value, str):
            yield value


_KNOWN = st.sampled_from(sorted({word for tree in _TREES.values() for word in _words(tree)}))
_CHANGES = st.tuples(st.integers(0, 2**16), st.one_of(_VALUES, _VALUES, _KNOWN, st.just(GONE)))


def changed(name, changes):
    """The defaults of a method with some fields changed, added or taken away."""
    tree = copy.deepcopy(_TREES[name])
    for number, value in changes:
        *sections, last = _PATHS[name][number % len(_PATHS[name])]
        place = tree
        for section in sections:
            place = place.get(section) if isinstance(place, dict) else None
        if isinstance(place, dict):
            place[last] = value
            if value is GONE:
                del place[last]
    return tree


@pytest.mark.parametrize(
    "examples",
    [
        60,
        pytest.param(300, marks=pytest.mark.thorough),
        pytest.param(10_000, marks=pytest.mark.slow),
    ],
)
def test_any_tree_resolves_or_is_refused_in_one_line(examples):
    counts = {"resolved": 0, "refused": 0}

    @fuzzing.feed(examples, st.sampled_from(NAMES), st.lists(_CHANGES, max_size=4))
    def resolves(name, changes):
        tree, config = changed(name, changes), None
        with contextlib.suppress(Exception):  # of ml_collections, which refuses some names
            config = ml_collections.ConfigDict(tree)
        if config is None:
            return
        try:
            resolved = config_lib.resolve(config)
        except ValueError as error:
            counts["refused"] += 1
            assert len(str(error).splitlines()) == 1, str(error)
            return
        counts["resolved"] += 1
        # What resolves resolves to itself, and has the fields of the method's defaults.
        again = config_lib.resolve(ml_collections.ConfigDict(resolved.to_dict()))
        assert again == resolved
        assert set(resolved.method) == set(_TREES[resolved.method.name]["method"])

    resolves()
    assert min(counts.values()) > examples / 25
