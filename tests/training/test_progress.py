import io
import re

import pytest

from pujax import console
from pujax.training.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def visible(text):
    """Text without the codes that move the cursor or set colours."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def step(bar, steps, epoch=0, **metrics):
    bar.update(steps, epoch=epoch, num_epochs=4, stage="main", metrics=metrics)


def test_off_a_terminal_lines_are_plain_spaced_and_end_with_the_last_state(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream, clock = io.StringIO(), Clock()
    with Progress(100, description="lagam [x]", stream=stream, clock=clock) as bar:
        for i in range(100):
            step(bar, 1, epoch=i // 25, loss=1.0 / (i + 1))
            clock.now += 0.25
    lines = stream.getvalue().splitlines()
    # 25 seconds: a line at 0, 10 and 20, and the last state.
    assert [re.search(r"step (\d+)/100", line)[1] for line in lines] == ["1", "41", "81", "100"]
    assert "\x1b" not in stream.getvalue() and "\r" not in stream.getvalue()
    assert lines[0] == "lagam [x] main 1/4: step 1/100, loss 1.0000"
    assert lines[-1] == "lagam [x] main 4/4: step 100/100, 0:00:25 in all, loss 0.0100"


def test_a_long_line_is_not_wrapped():
    stream = io.StringIO()
    with Progress(10, description="d" * 300, stream=stream) as bar:
        step(bar, 1, loss=0.5)
    assert len(stream.getvalue().splitlines()) == 1


def test_the_last_state_is_written_once_and_also_after_an_error():
    stream = io.StringIO()
    with (
        pytest.raises(KeyError),
        Progress(10, description="a", stream=stream, clock=Clock()) as bar,
    ):
        step(bar, 1)
        step(bar, 1)
        raise KeyError
    assert [re.search(r"step (\d+)", line)[1] for line in stream.getvalue().splitlines()] == [
        "1",
        "2",
    ]
    stream = io.StringIO()
    with Progress(10, description="a", stream=stream) as bar:
        step(bar, 1)
    assert len(stream.getvalue().splitlines()) == 1


def test_time_left_follows_the_present_speed_and_forgets_compiling():
    stream, clock = io.StringIO(), Clock()
    with Progress(1000, description="a", stream=stream, clock=clock) as bar:
        clock.now += 500  # compiling
        for _ in range(100):
            step(bar, 2)
            clock.now += 0.5
        # 199 of 1000 steps in the same pace: 4 steps per second.
        step(bar, 0)
        last = [line for line in stream.getvalue().splitlines() if "left" in line][-1]
    done = int(re.search(r"step (\d+)", last)[1])
    minutes, seconds = re.search(r"0:(\d\d):(\d\d) left", last).groups()
    assert 60 * int(minutes) + int(seconds) == pytest.approx((1000 - done) / 4, abs=1)


def test_resumed_steps_count_as_done_but_not_as_speed():
    stream, clock = io.StringIO(), Clock()
    with Progress(1000, description="a", stream=stream, clock=clock, interval=0.0) as bar:
        bar.start_at(900)
        for _ in range(3):
            step(bar, 10)
            clock.now += 10
    assert "step 930/1000, 0:01:10 left" in stream.getvalue().splitlines()[-1]


def test_metrics_stay_until_replaced_and_bad_values_are_passed_over():
    stream = io.StringIO()
    with Progress(10, description="a", stream=stream, interval=0.0) as bar:
        step(bar, 1, label_accuracy=0.5, test_accuracy=0.25, examples_per_second=1234.5)
        step(bar, 1, loss=2.0, label_accuracy=None, test_accuracy=float("nan"), other=3.0)
    last = stream.getvalue().splitlines()[-1]
    assert last.endswith("loss 2.0000, labels 50.0 %, test 25.0 %, 1,234 examples/s")


def test_on_a_terminal_a_bar_shows_stage_loss_labels_and_time_left_in_80_columns(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream, clock = Terminal(), Clock()
    with Progress(100, description="lagam", stream=stream, clock=clock) as bar:
        for _ in range(5):
            step(bar, 10, epoch=1, loss=0.25, label_accuracy=0.931, test_accuracy=0.5)
            clock.now += 10
    last = visible(stream.getvalue()).rstrip().splitlines()[-1]
    for text in ("lagam main 2/4", "50%", "0:00:50 left", "loss 0.2500", "labels 93.1 %"):
        assert text in last
    assert len(last) <= 80


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_disabled_says_nothing(stream):
    with Progress(10, description="a", enabled=False, stream=stream) as bar:
        bar.start_at(2)
        step(bar, 1, loss=1.0)
    assert stream.getvalue() == ""


def test_progress_goes_to_stderr_and_messages_to_stdout(capsys):
    console.message("counts: [1]")
    with Progress(10, description="a") as bar:
        step(bar, 1)
    captured = capsys.readouterr()
    assert captured.out == "counts: [1]\n"
    assert captured.err == "a main 1/4: step 1/10\n"
