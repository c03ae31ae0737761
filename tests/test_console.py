import math
import os
import subprocess
import sys

import pytest

from pujax import console


def test_table_is_aligned_and_shows_missing_cells():
    rows = [
        {"method": "lagam", "F1": 0.98765, "recovered": "590 / 600 (98.3 %)"},
        {"method": "naive (baseline)", "F1": float("nan"), "recovered": "0 / 600", "extra": 1},
        {"method": "x", "recovered": None},
    ]
    assert console.render_table(rows, ("method", "F1", "recovered")).splitlines() == [
        "method                F1           recovered",
        "----------------  ------  ------------------",
        "lagam             0.9877  590 / 600 (98.3 %)",
        "naive (baseline)       -             0 / 600",
        "x                      -                   -",
    ]


def test_table_without_rows_is_its_headings():
    assert console.render_table([], ["a", "bc"]) == "a  bc\n-  --"


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (12.345, 1, "12.3"),
        (0.05, 1, "0.1"),  # rounded, but not to 0
        (0.04, 1, "0.04"),
        (0.00096, 2, "0.0010"),
        (1e-4, 3, "0.0001"),
        (-3e-6, 2, "-0.000003"),
        (0.0, 2, "0.00"),
        (math.nan, 1, "nan"),
        (math.inf, 1, "inf"),
    ],
)
def test_a_small_number_does_not_read_as_zero(value, digits, text):
    assert console.fixed(value, digits) == text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (99.94, 1, "99.9"),
        (99.96, 1, "99.96"),
        (99.9996, 1, "99.9996"),
        (100.0, 1, "100.0"),
        (100.04, 1, "100.0"),  # beyond it, as an interval may be
        (0.04, 1, "0.04"),
    ],
)
def test_a_number_below_the_most_does_not_read_as_that(value, digits, text):
    assert console.fixed(value, digits, most=100) == text
    assert console.fixed(value, digits) == f"{value:.{digits}f}" or text == "0.04"


@pytest.mark.thorough
@pytest.mark.parametrize("log", ["", "debug"])
def test_own_log_lines_are_shown_and_those_of_libraries_only_from_warnings_on(tmp_path, log):
    """In a process of its own: the setting is for a whole program."""
    library = tmp_path / "pujax" / "library.py"  # a folder of that name is not the package
    library.parent.mkdir()
    library.write_text(
        "import logging\n"
        "from absl import logging as absl_logging\n"
        "for log in (logging.getLogger('library'), absl_logging):\n"
        "    log.info('quiet')\n"
        "    log.warning('loud')\n"
    )
    code = (
        "import runpy\n"
        "from pujax import console\n"
        "from pujax.training import preemption\n"
        "console.show_own_messages()\n"
        "preemption.StopRequest()._handle(15, None)\n"
        f"runpy.run_path({str(library)!r})\n"
    )
    environment = os.environ | {"PUJAX_LOG": log}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = result.stderr.splitlines()
    assert "SIGTERM: saving and stopping (again to stop now)" in lines
    assert lines.count("loud") == 2 and lines.count("quiet") == (2 if log else 0)
    assert "flag parsing" not in result.stderr


@pytest.mark.thorough
def test_a_warning_that_python_code_sees_is_a_sentence_and_nothing_else():
    """In a process of its own, which has not said how log lines are to be shown."""
    code = "from pujax.priors import best_bin\nbest_bin([0.5] * 4, [0.5] * 4)\n"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    said = "positive and unlabeled scores are the same: every prior is possible"
    assert said in result.stderr.splitlines()
