"""Progress of a run: a bar on a terminal, a line every few seconds elsewhere.

Progress goes to the standard error stream, results (`console.message`) to the standard output, so
that a pipe receives the results only.
"""

import collections
import datetime
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

import rich.progress
from rich.console import Console
from rich.table import Column

# Time left follows the speed over this many seconds, so that compiling is soon forgotten.
_SPEED_WINDOW = 30.0

_SHOWN: dict[str, Callable[[float], str]] = {
    "loss": lambda value: f"loss {value:.4f}",
    "label_accuracy": lambda value: f"labels {100 * value:.1f} %",
    "test_accuracy": lambda value: f"test {100 * value:.1f} %",
    "test_mean_average_precision": lambda value: f"test mAP {100 * value:.1f} %",
    "examples_per_second": lambda value: f"{value:,.0f} examples/s",
}


class Progress:
    """Context manager that shows how far a run is.

    On a terminal it is a bar; elsewhere (logs, CI) a plain line is written when the first steps are
    done, at most one per `interval` after that, and one at the end.

    Args:
      total_steps: steps of the whole run.
      description: what is running.
      enabled: False shows nothing, for hosts other than the first.
      stream: where it goes; the standard error stream if None.
      interval: seconds between plain lines.
      clock: seconds from any origin; replaced in tests.
    """

    def __init__(
        self,
        total_steps: int,
        *,
        description: str,
        enabled: bool = True,
        stream: TextIO | None = None,
        interval: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._total = total_steps
        self._description = description
        self._enabled = enabled
        self._console = Console(file=stream) if stream else Console(stderr=True)
        self._interval = interval
        self._clock = clock
        self._started = clock()
        self._done = 0
        self._place = "starting"
        self._metrics: dict[str, float] = {}
        self._speed_points: collections.deque[tuple[float, int]] = collections.deque()
        self._next_line = -math.inf
        self._unsaid = False
        self._bar: rich.progress.Progress | None = None

    @property
    def enabled(self) -> bool:
        """Whether anything is shown of the run while it trains."""
        return self._enabled

    def __enter__(self) -> "Progress":
        # FORCE_COLOR makes rich take a log file for a terminal, so the file itself is asked.
        file = self._console.file
        if self._enabled and file.isatty() and not self._console.is_dumb_terminal:
            self._bar = rich.progress.Progress(
                rich.progress.SpinnerColumn("line"),
                rich.progress.TextColumn(
                    "{task.description}", markup=False, table_column=Column(no_wrap=True)
                ),
                rich.progress.BarColumn(bar_width=10),
                rich.progress.TextColumn("{task.percentage:.0f}%"),
                rich.progress.TextColumn(
                    "{task.fields[status]}",
                    markup=False,
                    table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
                ),
                console=self._console,
                expand=True,
                refresh_per_second=4,
            )
            self._bar.add_task(self._heading(), total=self._total, status="compiling")
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._unsaid:
            self._write_line()

    def start_at(self, steps: int) -> None:
        """Says that an earlier process has done the first `steps` steps."""
        self._done = steps
        self._speed_points.clear()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=steps)

    def update(
        self,
        steps: int,
        *,
        epoch: int,
        num_epochs: int,
        stage: str,
        metrics: Mapping[str, Any],
    ) -> None:
        """Shows progress.

        Args:
          steps: steps done since the last call, 0 if there is only something new to show.
          epoch: the epoch they belong to, counted from 0 over all stages.
          num_epochs: epochs of all stages.
          stage: name of the stage.
          metrics: `loss`, `label_accuracy`, `test_accuracy` (fractions) and `examples_per_second`
            are shown; one that is absent or not finite leaves what was shown before.
        """
        if not self._enabled:
            return
        time_now = self._clock()
        self._done += steps
        if steps:
            self._note_speed(time_now)
        self._place = f"{stage} {min(epoch + 1, num_epochs)}/{num_epochs}"
        for name in _SHOWN:
            value = metrics.get(name)
            if value is not None and math.isfinite(value):
                self._metrics[name] = float(value)
        self._unsaid = True
        if self._bar is not None:
            self._bar.update(
                self._bar.task_ids[0],
                completed=self._done,
                description=self._heading(),
                status=self._status(),
            )
        elif time_now >= self._next_line:
            self._next_line = time_now + self._interval
            self._write_line()

    def _note_speed(self, time_now: float) -> None:
        points = self._speed_points
        points.append((time_now, self._done))
        while len(points) > 2 and time_now - points[1][0] >= _SPEED_WINDOW:
            points.popleft()

    def _time(self) -> str:
        """Time left at the present speed, or taken at the end; "" before there is a speed."""
        if self._done >= self._total:
            return f"{_clock_time(self._clock() - self._started)} in all"
        if len(self._speed_points) < 2:
            return ""
        (start, before), (end, after) = self._speed_points[0], self._speed_points[-1]
        left = (end - start) / (after - before) * (self._total - self._done)
        return f"{_clock_time(left)} left"

    def _heading(self) -> str:
        return f"{self._description} {self._place}"

    def _status(self) -> str:
        # Time first: a narrow terminal cuts the end off.
        parts = [self._time()]
        parts += [say(self._metrics[name]) for name, say in _SHOWN.items() if name in self._metrics]
        return ", ".join(filter(None, parts))

    def _write_line(self) -> None:
        self._unsaid = False
        step = f"step {self._done}/{self._total}"
        line = f"{self._heading()}: {', '.join(filter(None, [step, self._status()]))}"
        # soft_wrap: a log line is one line, however long.
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _clock_time(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(seconds)))
