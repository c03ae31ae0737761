"""README's picture is drawn from what a run leaves in its folder."""

import numpy as np
import pytest
from PIL import Image

from benchmarks import readme_picture
from pujax.training import example_scores
from tests.reports import folders


def test_the_picture_has_two_panels_and_the_counts_of_three_groups(tmp_path):
    run = folders.tested(tmp_path / "run")
    figure = readme_picture.draw(str(run))
    left, right = figure.axes
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["labelled (30)", "positives in U (40)", "negatives in U (60)"]
    saved = example_scores.read(run)
    drawn = [tuple(point) for line in left.lines for point in line.get_xydata()]
    assert sorted(drawn) == sorted(tuple(point) for point in saved.map_tsne.astype(float))
    # Every second example has a place on the map: an even row, so half of each group.
    assert [len(line.get_xdata()) for line in left.lines] == [30, 20, 15]
    for patch, start, stop in zip(right.patches, (70, 30, 0), (130, 70, 30), strict=True):
        values, edges, _ = patch.get_data()
        wanted, _ = np.histogram(saved.train_scores[start:stop], edges, density=True)
        np.testing.assert_array_equal(values, wanted)


def test_the_command_draws_the_run_that_it_trains(tmp_path, monkeypatch):
    trained = []

    def run(config, folder):
        trained.append(config.method)
        folders.tested(folder)

    monkeypatch.setattr(readme_picture.training, "run", run)
    picture = tmp_path / "picture.png"
    readme_picture.main([f"--output={picture}", "--config.method.num_epochs=7"])
    (method,) = trained
    assert method.name == "lagam" and method.num_epochs == 7
    with Image.open(picture) as image:
        assert image.size == (1280, 620)
    before = picture.read_bytes()
    readme_picture.main([f"--output={picture}", f"--run={folders.tested(tmp_path / 'run')}"])
    assert len(trained) == 1 and picture.read_bytes() == before
    with pytest.raises(SystemExit):
        readme_picture.main(["--run=run", "--config.method.num_epochs=7"])


@pytest.mark.parametrize("wrong", ["--output=none/x.png", "--run=none"])
def test_a_wrong_flag_is_one_line_before_anything_is_trained(wrong, monkeypatch, capsys):
    monkeypatch.setattr(readme_picture.training, "run", None)  # a call would be a TypeError
    assert readme_picture.main([wrong]) == 2
    said = capsys.readouterr().err
    flag, _, value = wrong.partition("=")
    assert said.startswith(f"{flag} is {value!r}") and "accepted: " in said
    assert said.count("\n") == 1


def test_a_run_without_a_map_says_why(tmp_path):
    with pytest.raises(ValueError, match=r"a', which has no map to draw \(no scores\.npz\)"):
        readme_picture.draw(str(folders.tested(tmp_path / "a", with_scores=False)))
    kept = {name: x for name, x in folders.train_part().items() if name != "map_tsne"}
    why = "the representation has collapsed"
    run = folders.write(tmp_path / "b", folders.config(), scores=kept | {"map_remark": why})
    with pytest.raises(ValueError, match=rf"b', which has no map to draw \({why}\)"):
        readme_picture.draw(str(run))
