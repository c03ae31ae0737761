"""What a run on one's own examples with several labels each leaves: predictions, a saved model."""

import os
from typing import Any

import ml_collections

from pujax.data.multilabel_dataset import MultilabelDataset
from pujax.files import replace_text
from pujax.methods.base import Method
from pujax.training import own_results, prediction_csv, saved_model
from pujax.training.evaluation.multilabel import is_predicted
from pujax.training.evaluation.summary import Final


def write(
    folder: str,
    config: ml_collections.FrozenConfigDict,
    method: Method,
    state: Any,
    data: MultilabelDataset,
    final: Final,
) -> None:
    """Writes predictions for the training examples, and the model for examples to come.

    Args:
      folder: of the run.
      config: resolved configuration.
      method: what was trained.
      state: the reported state, as it is evaluated.
      data: the problem, whose unknown labels are what one wants to know.
      final: evaluation of that state.
    """
    assert data.own is not None  # else there are no examples to name
    scores = final.train_scores
    text = prediction_csv.label_text(
        data.own.id_name,
        data.info.class_names,
        data.own.ids,
        scores,
        is_predicted(scores, config.run.threshold),
        data.labeled,
    )
    replace_text(os.path.join(folder, own_results.PREDICTIONS), text)
    place = os.path.join(folder, own_results.MODEL)
    saved_model.save(place, config, method, state, data, None, test=final.test)
