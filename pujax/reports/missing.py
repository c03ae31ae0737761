"""Why something is not on a page."""

from pujax.reports.run_folder import Run

NOT_WRITTEN = (
    "Unknown: this run did not write the scores of its examples (scores.npz), which runs of this "
    "version of pujax do. Train it again into a new folder to see this."
)
SEVERAL_LABELS = "Not shown: examples of this run have several labels each."


def reason(run: Run) -> str:
    """Why there are no scores of examples."""
    return NOT_WRITTEN if run.summary is not None else "Unknown: the run is not finished."
