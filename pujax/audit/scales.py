"""Is there a number so large that the rest of its column is nothing beside it?"""

from pujax.audit.base import SHOWN, WARNING, Finding, Problem, listed
from pujax.data import raw


def check(problem: Problem) -> list[Finding]:
    """A finding of the columns that standardising leaves nothing of but a few numbers.

    Args:
      problem: P and U.
    """
    found = raw.outliers(problem.features)
    if not found:
        return []
    names = dict.fromkeys(repr(problem.columns[one.column]) for one in found)
    numbers = [
        {
            "column": problem.columns[one.column],
            "row": str(problem.ids[one.row]),
            "value": one.value,
            "typical": one.typical,
            "left_out": one.left_out,
        }
        for one in found
    ]
    return [
        Finding(
            "scale",
            WARNING,
            f"beside a few numbers the rest of a column is nothing: {listed(names)}",
            tuple(
                f"column {problem.columns[one.column]!r}: {one.value:.4g} in "
                f"{problem.ids[one.row]}, where all rows but {one.left_out} are "
                f"within {one.typical:.4g} of the median"
                for one in found[:SHOWN]
            ),
            "correct these numbers; where they stand for a missing one, leave the cells of a table "
            "empty, and clip those of an array, which has no empty cells; if they are right, give "
            "the column's logarithm",
            {"outliers": numbers},
        )
    ]
