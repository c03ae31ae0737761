"""`PUStratifiedKFold`: folds for scikit-learn's model selection on positive and unlabeled rows."""

from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold


class PUStratifiedKFold(StratifiedKFold):
    """Folds that hold the same share of the labelled positives each, shuffled.

    Every fold needs a labelled positive and an unlabeled row to be judged by, so that there may be
    no more folds than either.
    """

    def __init__(self, n_splits: int = 5, *, shuffle: bool = True, random_state: Any = None):
        super().__init__(n_splits, shuffle=shuffle, random_state=random_state)

    def split(self, X: Any, y: Any, groups: Any = None) -> Any:
        """Yields `(train, test)` rows; `y` are labels as in `PUClassifier.fit`."""
        labels, counts = np.unique(np.asarray(y), return_counts=True)
        if len(labels) == 2 and counts.min() < self.n_splits:
            rarer = labels[counts.argmin()]
            raise ValueError(
                f"n_splits is {self.n_splits}; accepted: at most {counts.min()}, the number of "
                f"rows with the label {rarer}"
            )
        return super().split(X, y, groups)
