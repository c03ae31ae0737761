"""The examples of meta-gradients run, and what they learn is better than what was given."""

import pathlib

import pytest

from examples import bare_optax, example_weights, label_rule, learned_prior, temperature

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "examples"
MODULES = (bare_optax, example_weights, label_rule, learned_prior, temperature)


@pytest.mark.parametrize("module", MODULES)
def test_an_example_is_short_and_says_how_it_is_run(module):
    path = FOLDER / f"{module.__name__.partition('.')[2]}.py"
    text = path.read_text()
    assert len(text.splitlines()) < 60
    assert f"    python examples/{path.name}\n" in text.partition('"""\n\n')[0]


def test_the_bare_loop_takes_nothing_of_pujax_but_its_meta_gradients():
    lines = (FOLDER / "bare_optax.py").read_text().splitlines()
    assert [line for line in lines if "import" in line and "pujax" in line] == [
        "from pujax import meta"
    ]


@pytest.mark.thorough
def test_a_label_rule_of_ones_own_finds_hidden_positives():
    given, accuracy = label_rule.main(learn=False)
    learned, learned_accuracy = label_rule.main()
    assert given < 0.6 and learned > 0.75
    assert learned_accuracy > accuracy + 0.02


@pytest.mark.thorough
def test_a_learned_prior_comes_from_a_wrong_one_to_the_truth():
    kept, truth, accuracy = learned_prior.main(learn=False)
    learned, _, learned_accuracy = learned_prior.main()
    assert kept == pytest.approx(0.2) and abs(learned - truth) < 0.05
    assert learned_accuracy > accuracy + 0.2


@pytest.mark.thorough
def test_learned_weights_leave_hidden_positives_out():
    share, accuracy = example_weights.main(learn=False)
    learned, learned_accuracy = example_weights.main()
    assert learned < share / 2 and learned_accuracy > accuracy + 0.02


@pytest.mark.thorough
def test_estimators_agree_on_the_hypergradient_of_a_temperature_which_descends():
    gradients, path = temperature.main()
    exact = gradients.pop("reverse")
    assert gradients["mixed"] == pytest.approx(exact, rel=1e-4)
    assert gradients["finite_difference"] == pytest.approx(exact, rel=1e-2)
    (first, before), (last, after) = path[0], path[-1]
    assert after < before - 0.05 and last > 2 * first


@pytest.mark.thorough
def test_labels_learn_in_a_bare_loop():
    before, after, accuracy = bare_optax.main()
    assert before < 0.65 and after > 0.8 and accuracy > 0.85
