"""An option is given once, and an error of one says what is accepted."""

import pytest
from absl import flags

from pujax import command_line


@pytest.fixture
def values():
    found = flags.FlagValues()
    flags.DEFINE_string("label", "", "label", flag_values=found)
    flags.DEFINE_bool("examples", True, "examples", flag_values=found)
    flags.DEFINE_multi_string("set", [], "set", flag_values=found)
    flags.DEFINE_integer("seed", 0, "seed", flag_values=found)
    return found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--label=y", "a.csv", "-label", "x"], "--label is 'y' and 'x'; accepted: every option"),
        (["--examples", "--noexamples"], "--examples is 'true' and 'false'; accepted"),
        (["--label=y", "--label="], "--label is 'y' and ''; accepted"),
    ],
)
def test_an_option_that_is_given_twice_is_refused_with_both_values(values, words, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        command_line.check_once(["pujax check", *words], values)


@pytest.mark.parametrize(
    "words",
    [
        ["--set=a=1", "--set=b=2"],
        ["--label=y", "--label=y"],
        ["--examples", "--label=y"],
        ["--label=y", "--", "--label=x"],
        ["--label", "--label=x"],
        ["-", "-"],
    ],
)
def test_what_may_be_repeated_is_not_refused(values, words):
    command_line.check_once(["pujax check", *words], values)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("--seed=x", "--seed is 'x'; accepted: an integer"),
        ("--examples=3", "--examples is '3'; accepted: true or false"),
        ("--label", "--label has no value; accepted: --label=VALUE"),
        (
            "--lable=x",
            "--lable is not an option of this command (did you mean --label?); accepted: "
            "--examples, --label, --seed, --set",
        ),
    ],
)
def test_an_error_of_an_option_says_what_is_accepted(values, word, said):
    with pytest.raises(flags.Error) as error:
        values(["pujax check", word])
    assert command_line.describe(error.value, values) == said


def test_another_error_is_its_text_in_one_line(values):
    assert command_line.describe(ValueError("a\n  b"), values) == "a b"


@pytest.mark.parametrize(
    "words",
    [
        ["--config.run.figures", "--workdir=a", "--config.run.figures", "--config.seed=2"],
        ["--flagfile=a", "--flagfile=b"],
        ["--config.data.prior", "-0.5", "--config.seed=1"],
    ],
)
def test_what_is_given_once_or_may_be_repeated_goes_on(words):
    command_line.check_once(["pujax train", *words])


def test_an_option_after_a_bare_boolean_is_seen():
    words = ["pujax train", "--config.run.figures", "--config.seed=1", "--config.seed=2"]
    with pytest.raises(ValueError, match="--config.seed is '1' and '2'; accepted: every option"):
        command_line.check_once(words)
