"""Networks with one logit per category: a backbone and a plain or a semantic-graph head."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from pujax.models import layers
from pujax.models.semantic_graph import GraphConstants, SemanticGraph, adjacency

__all__ = [
    "HEADS",
    "GraphConstants",
    "MultilabelNet",
    "Outputs",
    "SemanticGraph",
    "adjacency",
    "check_head",
]

HEADS = ("gap", "semantic_graph")


class Outputs(NamedTuple):
    """What a `MultilabelNet` puts out, in float32.

    Attributes:
      logits: raw scores [batch, classes], a category is predicted where its score is > 0.
      features: what the classifier multiplies, [batch, d] with the head "gap" and one vector per
        category [batch, classes, d] with "semantic_graph".
    """

    logits: jax.Array
    features: jax.Array


def check_head(head: str) -> None:
    """Raises a ValueError unless `head` is one of `HEADS`."""
    if head not in HEADS:
        raise ValueError(f"head is {head!r}; accepted: {', '.join(HEADS)}")


class MultilabelNet(nn.Module):
    """A backbone with one linear score per category.

    - "gap": the backbone's pooled features and one affine map, the plain reading of PU-MLC
      (arXiv 2306.16016). Its parameters are at `params['classifier']`.
    - "semantic_graph": `SemanticGraph` on the backbone's last feature map, the head of the released
      code. Its parameters are at `params['semantic_graph']`.

    Classifiers multiply in full float32 for every type of the backbone.

    Attributes:
      backbone: module called as `(inputs, train)` that gives features [batch, d] for "gap", and
        feature maps [batch, height, width, d] for "semantic_graph" (a residual network with
        `pool=False`).
      num_classes: number of categories.
      head: "gap" or "semantic_graph".
      reduced_width: `SemanticGraph.width`; the three widths matter for that head alone.
      attention_width: `SemanticGraph.attention_width`.
      graph_steps: `SemanticGraph.num_steps`.
      dtype: `SemanticGraph.dtype`, the compute type of that head's large products.
    """

    backbone: nn.Module
    num_classes: int
    head: str = "gap"
    reduced_width: int = 1024
    attention_width: int = 512
    graph_steps: int = 3
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, inputs: jax.Array, train: bool, *, constants: GraphConstants | None = None
    ) -> Outputs:
        """Logits and features of a batch.

        Args:
          inputs: what the backbone accepts, usually images [batch, height, width, channels].
          train: True normalises by the batch and moves `batch_stats`, which must be mutable then.
          constants: of the `num_classes` categories; "gap" does without.

        Returns:
          `Outputs`.

        Raises:
          ValueError: if `head` is unknown, the constants are missing or of another number of
            categories, or the backbone does not give what the head takes.
        """
        check_head(self.head)
        is_graph = self.head == "semantic_graph"
        if is_graph:
            constants = self._checked(constants)
        features = self.backbone(inputs, train).astype(jnp.float32)
        if features.ndim != (4 if is_graph else 2):
            accepted = "[batch, height, width, d] (pool=False)" if is_graph else "[batch, d]"
            raise ValueError(
                f"features of the backbone have shape {features.shape}; accepted with the head "
                f"{self.head!r}: {accepted}"
            )
        if constants is not None and is_graph:
            head = SemanticGraph(
                self.reduced_width,
                self.attention_width,
                self.graph_steps,
                self.dtype,
                name="semantic_graph",
            )
            return Outputs(*head(features, constants, train))
        logits = layers.dense(
            features, self.num_classes, precision=jax.lax.Precision.HIGHEST, name="classifier"
        )
        return Outputs(logits, features)

    def _checked(self, constants: GraphConstants | None) -> GraphConstants:
        """The constants; raises a ValueError unless they are those of `num_classes` categories."""
        count = self.num_classes
        if constants is None:
            raise ValueError(
                "constants is None; accepted with the head 'semantic_graph': GraphConstants"
                f"(word_vectors [{count}, width], adjacency [{count}, {count}])"
            )
        words, graph = (jnp.shape(array) for array in constants)
        if len(words) != 2 or words[0] != count:
            raise ValueError(
                f"constants.word_vectors has shape {words}; accepted: one vector for each of "
                f"{count} categories, [{count}, width]"
            )
        if graph != (count, count):
            raise ValueError(f"constants.adjacency has shape {graph}; accepted: [{count}, {count}]")
        return constants
