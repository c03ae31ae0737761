"""The page itself: its numbers are the run's, its text is escaped, and it loads nothing."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from pujax import reports
from pujax.reports import evidence, tables
from tests.reports import folders
from tests.reports.pages import Page

HOSTILE = "<script>alert('x')</script>&\"<b>"


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(evidence, "_RESAMPLES", 20)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Pages of a run with truth, of one without, and of three runs, each built once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evidence, "_RESAMPLES", 20)
        place = tmp_path_factory.mktemp("runs")
        one = folders.tested(place / "one")
        own = folders.held(place / "own", source="own_table", path="gone.csv", label="y")
        folders.tested(place / "two", method="vpu", gap=3.0)
        three = [str(one), str(place / "two"), str(own)]
        pages = {
            "tested": reports.build([str(one)]),
            "held": reports.build([str(own)]),
            "three": reports.build(three),
        }
    return place, pages


@pytest.fixture(params=["tested", "held", "three"])
def html(request, built):
    return built[1][request.param].html


def test_a_page_loads_nothing_and_runs_nothing(html):
    page = Page(html)
    assert not {"script", "iframe", "object", "embed", "link", "base", "form"} & {
        name for name, _ in page.elements
    }
    for _, attributes in page.elements:
        for name, value in attributes.items():
            if name.split(":")[-1] in ("href", "src", "srcset", "action", "data"):
                assert value.startswith(("#", "data:image/png;base64,")), (name, value)
            assert not name.startswith("on")
    css = re.search(r"<style>(.*?)</style>", html, re.DOTALL)[1]
    assert not re.search(r"@import|https?:", css) and "prefers-color-scheme: dark" in css
    outside = re.sub(r'xmlns(:xlink)?="[^"]+"', "", html)
    assert "http:" not in outside and "https:" not in outside
    assert len(html) < 1_500_000


def test_ids_are_unique_and_every_reference_leads_to_one(html):
    page = Page(html)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids)) > 20
    references = re.findall(r'href="#([^"]+)"', html) + re.findall(r"url\(#([^)]+)\)", html)
    assert references and set(references) <= set(ids)
    labels = [x["aria-labelledby"] for _, x in page.elements if "aria-labelledby" in x]
    assert labels and set(labels) <= set(ids)


def test_figures_are_svg_with_a_description_and_the_colours_of_the_page(html):
    svgs = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    described = [x for _, x in Page(html).elements if x.get("role") == "img"]
    assert len(svgs) == len(described) >= 5
    assert all(len(x["aria-label"]) > 15 for x in described)
    for text in svgs:
        ElementTree.fromstring(text)
        assert "viewBox" in text and "currentColor" in text and "<text" in text
        assert "#000000" not in text and "<metadata" not in text


def test_tables_have_captions_and_headings_and_images_a_description(html):
    page = Page(html)
    assert None not in page.tables and len(page.tables) >= 3
    for rows in page.tables.values():
        assert len({len(row) for row in rows}) == 1
    scopes = [x.get("scope") for x in page.named("th")]
    assert set(scopes) == {"col", "row"}
    assert all(x["alt"] for x in page.named("img"))
    (viewport,) = [x for x in page.named("meta") if x.get("name") == "viewport"]
    assert "width=device-width" in viewport["content"]


def test_numbers_on_the_page_are_those_of_the_summary(built):
    place, pages = built
    summary = json.loads((place / "one" / "summary.json").read_text())
    page = Page(pages["tested"].html)
    titles = {"accuracy": "accuracy", "f1": "F1", "auc": "AUC"}
    for name, title in {**titles, "average_precision": "average precision"}.items():
        shown = page.row("On the test set", title)["value"]
        value, low, high = map(float, re.findall(r"[\d.]+", shown))
        assert value == round(summary["test"][name], 4) and low <= value <= high
        assert low < high
    assert page.row("Examples", "unlabeled (U), trained on")["number"] == "100"
    assert page.row("Examples", "positives among the test examples")["number"] == "60"
    flagged = summary["test"]["predicted_positive"]
    shown = page.row("Shares", "test set, called positive")["value"]
    assert shown.startswith(f"{100 * flagged:.1f} % [")
    assert page.row("Shares", "U, in truth")["value"] == "40.0 %"
    assert page.row("The run", "reported epoch")["value"] == "4, chosen by last"
    settings = page.table("All settings of the method")
    assert ["method.num_epochs", str(folders.config()["method"]["num_epochs"])] in settings


@pytest.mark.parametrize(
    ("counts", "shown"),
    [({"unlabeled_copies": 20}, ["60.0 %"]), ({}, [])],  # older runs did not count them
)
def test_the_true_share_of_u_counts_the_positives_that_it_repeats(tmp_path, counts, shown):
    def two_sample(summary):
        summary["setting"] = "two_sample"
        summary["counts"] |= counts

    folders.tested(tmp_path / "run", change=two_sample)
    page = Page(reports.build([str(tmp_path / "run")]).html)
    rows = [row for row in page.table("Shares") if row[0] == "U, in truth"]
    assert [row[1] for row in rows] == shown


def test_what_held_out_rows_tell_has_its_interval_and_its_assumption(built):
    place, pages = built
    summary = json.loads((place / "own" / "summary.json").read_text())
    page = Page(pages["held"].html)
    for entry, row in zip(summary["held_out"], page.table("What held-out P")[1:], strict=True):
        value, low, high = (f"{entry[name]:.4f}" for name in ("value", "low", "high"))
        assert row[1] == f"{value} [{low}, {high}]" and row[2] == entry["assumption"]
    assert "The true class of no test example is known" in page.text
    assert "there is no ROC" in page.text and "Held-out P against U" in page.text
    shown = page.row("Shares", "U, prior that is used")["value"]
    assert shown == "30.0 % [24.0, 36.0]"
    # Data that are gone leave the scores and say why there are no rows.
    assert "data could not be read again (data.path is 'gone.csv'" in page.text
    assert len(page.table("Most certain: unlabeled, with the highest")) == 7


def test_the_verdict_comes_first_in_three_sentences(built):
    for page in built[1].values():
        assert len(page.verdict.sentences) == 3
        text = Page(page.html).text
        places = [text.index(sentence) for sentence in page.verdict.sentences]
        assert places == sorted(places) and places[-1] < 1500
        assert page.verdict.word in text[: places[0]]


def test_certain_uncertain_and_surprising_examples_are_the_right_ones(built):
    place, pages = built
    page = Page(pages["held"].html)
    scores = folders.read(place / "own").scores
    unlabeled = np.concatenate(
        [
            scores.train_scores[~scores.train_labeled],
            scores.held_scores[~scores.held_labeled],
        ]
    )
    known = np.concatenate(
        [scores.train_scores[scores.train_labeled], scores.held_scores[scores.held_labeled]]
    )

    def shown(beginning):
        return [float(row[1]) for row in page.table(beginning)[1:]]

    def rounded(values):
        return [float(f"{x:.3g}") for x in values[:6]]

    assert shown("Most certain: unlabeled, with the highest") == rounded(np.sort(unlabeled)[::-1])
    assert shown("Most certain: unlabeled, with the lowest") == rounded(np.sort(unlabeled))
    nearest = unlabeled[np.argsort(np.abs(unlabeled), kind="stable")]
    assert shown("Most uncertain") == rounded(nearest)
    assert shown("Most surprising: known positives") == rounded(np.sort(known))


def test_text_of_the_data_is_escaped_everywhere(tmp_path):
    def hostile(summary):
        summary["warnings"].append(HOSTILE)
        summary["dataset"] = HOSTILE
        summary["prior_source"] = HOSTILE
        summary["prior_choice"]["estimates"][HOSTILE] = [0.3]
        summary["held_out"][0]["assumption"] = HOSTILE
        summary["held_out"][1]["name"] = HOSTILE

    folder = folders.held(tmp_path / "a'<i>b", change=hostile, path=HOSTILE)
    html = reports.build([str(folder)]).html
    assert "<script" not in html and "<b>alert" not in html and "<i>b" not in html
    page = Page(html)
    assert page.text.count(HOSTILE) >= 4
    assert "a'<i>b" in page.text
    for text in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        ElementTree.fromstring(text)  # the estimator's name is in a figure, too


def test_an_older_run_says_what_it_did_not_write(tmp_path):
    folder = folders.tested(tmp_path / "run", with_scores=False)
    page = Page(reports.build([str(folder)]).html)
    assert page.text.count("did not write the scores of its examples") >= 4
    row = page.row("On the test set", "average precision")
    assert "[" not in row["value"] and "[" in page.row("On the test set", "AUC")["value"]


def test_a_run_that_is_not_finished_shows_what_there_is(tmp_path):
    folder = folders.write(tmp_path / "run", folders.config())
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 4, "lo')  # where the power failed
    built = reports.build([str(folder)])
    assert built.verdict.word == "Not finished"
    page = Page(built.html)
    assert page.text.count("the run is not finished") >= 3
    assert "scores.npz" not in page.text
    assert "Training loss over 4 epochs" in built.html
    assert page.row("The run", "finished")["value"] == "no"


@pytest.mark.parametrize("is_tested", [True, False])
def test_learned_labels_are_no_metrics_of_the_test_set(tmp_path, is_tested):
    folder = folders.tested(tmp_path / "run")
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) | {"label_accuracy": 0.9} for line in path.read_text().splitlines()]
    if not is_tested:
        rows = [{k: v for k, v in row.items() if not k.startswith("test_")} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = Page(reports.build([str(folder)]).html).text
    where = "test set and the learned labels of U" if is_tested else "learned labels of U"
    assert f"Metrics on the {where}." in text and "held-out rows." not in text


def test_a_run_that_was_stopped_before_its_summary_has_its_curves(tmp_path):
    folder = folders.tested(tmp_path / "run")
    (folder / "summary.json").unlink()
    built = reports.build([str(folder)])
    assert built.verdict.word == "Not finished" and "Precision-recall curve" in built.html


def test_unknown_numbers_are_called_unknown(tmp_path):
    folder = folders.held(tmp_path / "run", prior=None)
    page = Page(reports.build([str(folder)]).html)
    assert page.row("What held-out P", "precision in U")["value"] == "unknown"
    assert page.row("Examples", "positives hidden among the others")["number"] == "unknown"
    assert page.row("Shares", "U, prior that is used")["value"] == "unknown"
    assert "nan" not in page.text.lower().split()


def test_numbers_chosen_by_test_labels_are_called_oracle(tmp_path):
    def chosen(summary):
        summary["oracle_best_epoch"] = {"epoch": 2, "test_accuracy": 0.9876}

    folder = folders.tested(tmp_path / "run", change=chosen)
    texts = tables.quality(folders.read(folder)).texts
    assert texts == (
        "The best epoch by test accuracy would be 3 with 98.76 % (oracle: chosen on test labels, "
        "no result).",
    )


def test_several_labels_get_a_page_without_a_judgement(tmp_path):
    summary = folders.base_summary("pu_mlc") | {"setting": "multilabel"}
    summary["counts"] = {"train": 9, "classes": 3}
    summary["test"] = {"mean_average_precision": 0.4321, "overall_f1": None}
    tree = folders.config()
    folder = folders.write(tmp_path / "run", tree, summary=summary)
    built = reports.build([str(folder)])
    assert built.verdict.level == "unjudged" and "43.21 %" in built.verdict.sentences[0]
    assert Page(built.html).row("Test set", "overall f1")["value"] == "unknown"


def test_a_collapsed_representation_is_said(tmp_path):
    folder = folders.tested(tmp_path / "run")
    arrays = dict(np.load(folder / "scores.npz"))
    del arrays["map_tsne"]
    arrays["map_remark"] = np.asarray("the representation has collapsed")
    np.savez_compressed(folder / "scores.npz", **arrays)
    page = Page(reports.build([str(folder)]).html)
    assert "The representation has collapsed. Only principal components" in page.text
    assert "by the first two principal components" in page.text


@pytest.mark.thorough
def test_the_same_folder_makes_the_same_page(built):
    place, pages = built
    assert reports.build([str(place / "one")]).html == pages["tested"].html
