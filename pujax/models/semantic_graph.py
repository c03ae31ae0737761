"""Semantic decoupling and a gated graph over categories: the head of PU-MLC's released network."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from pujax.models import layers

_EXACT = jax.lax.Precision.HIGHEST


class GraphConstants(NamedTuple):
    """What the head knows of the categories beforehand; no parameters, given with every call.

    Attributes:
      word_vectors: one vector per category [classes, width]; the published ones have width 300.
      adjacency: how often categories come together [classes, classes], see `adjacency`.
    """

    word_vectors: jax.Array
    adjacency: jax.Array


def adjacency(known_positives: jax.Array) -> jax.Array:
    """How often category j is present where category i is: count(i and j) / count(i).

    Counts run over *known* positives, those that the labelling left. The diagonal is 1, as
    count(i) / count(i). A category without a known example would divide zero by zero, and the
    released code continues with NaN (it does not use its own replacement): here its row is 0,
    the diagonal too, and so is its column, so that it neither sends nor receives messages.

    Args:
      known_positives: [images, classes], 1 or True where the category is known to be present;
        0, -1 and False all count as not known.

    Returns:
      Shares in [0, 1], row i given that i is present [classes, classes]; float32, or float64 for
      float64 input. Counts are exact below 2^24 images.

    Raises:
      ValueError: if there are not two axes.
    """
    known_positives = jnp.asarray(known_positives)
    if known_positives.ndim != 2:
        raise ValueError(
            f"known_positives have shape {known_positives.shape}; accepted: [images, classes]"
        )
    dtype = jnp.promote_types(known_positives.dtype, jnp.float32)
    present = (known_positives == 1).astype(dtype)
    together = jnp.matmul(present.T, present, precision=_EXACT)
    # count(i) is 0 only where the whole row is: the quotient is then 0 / 1.
    return together / jnp.maximum(jnp.diagonal(together), 1)[:, None]


def decouple(
    features: jax.Array, projected: jax.Array, words: jax.Array, weights: jax.Array
) -> jax.Array:
    """One vector per category: the mean of the positions, weighted by what speaks for it.

    The weights are a softmax over positions of `weights . tanh(projected * words)`. Written down
    in one piece this holds an array [batch, positions, classes, k], in the published form another
    of the features' width. Here one category is scored after the other and scored again for its
    gradient, which on a CPU is also much faster (`benchmarks/semantic_decoupling.py`). SSGRL: Chen
    et al., 2019, https://arxiv.org/abs/1908.07325, section 3.2.

    Args:
      features: [batch, positions, d].
      projected: the features in the space compared in [batch, positions, k].
      words: the word vectors in that space [classes, k].
      weights: [k].

    Returns:
      [batch, classes, d]. All is computed in the type of the arguments.
    """

    @jax.checkpoint
    def scores(word):
        return jnp.matmul(jnp.tanh(projected * word), weights, precision=_EXACT)

    attention = jax.nn.softmax(jax.lax.map(scores, words), axis=-1)
    return jnp.einsum("cbp,bpd->bcd", attention, features, precision=_EXACT)


class SemanticGraph(nn.Module):
    """Logits from a feature map by way of one vector per category and messages between them.

    The parts, in their order: the map is pooled by 2x2 means and its channels are reduced;
    `decouple` draws a vector per category from it; a gated graph network passes messages between
    categories (Li et al., 2016, https://arxiv.org/abs/1511.05493); the vectors before and after
    are joined; each category has a linear classifier of its own. This is the released code of
    PU-MLC (arXiv 2306.16016), taken from SSGRL; the paper itself does not mention it.

    The batch norm of the reduction follows `train`. With `train=False` it is the affine map that
    it is in the released training. At the published widths there are 2,099,200 + 941,057 +
    9,443,328 + 2,098,176 + 1,025 * classes parameters for 2048 input channels.

    Attributes:
      width: channels after the reduction, of all category vectors.
      attention_width: of the space in which positions and words are compared.
      num_steps: rounds of messages.
      dtype: compute type of the large products (reduction, projection, graph, fusion); sums over
        positions, softmax, messages and classifiers are in float32 in any case.
    """

    width: int = 1024
    attention_width: int = 512
    num_steps: int = 3
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, maps: jax.Array, constants: GraphConstants, train: bool
    ) -> tuple[jax.Array, jax.Array]:
        """Scores the categories of a batch.

        Args:
          maps: feature maps [batch, height, width, channels]. A side of 1 is not pooled.
          constants: of the categories.
          train: True normalises the reduction by the batch and moves `batch_stats`.

        Returns:
          `(logits, vectors)`: [batch, classes] and what the classifiers multiply [batch, classes,
          self.width], in float32.
        """
        word_vectors, graph = (jnp.asarray(x, jnp.float32) for x in constants)
        if min(maps.shape[1:3]) > 1:
            maps = nn.avg_pool(maps, (2, 2), strides=(2, 2))
        reduced = layers.conv(
            maps, self.width, 1, use_bias=False, dtype=self.dtype, name="reduction"
        )
        reduced = layers.BatchNorm(name="reduction_norm")(reduced, train)
        features = reduced.reshape(len(reduced), -1, self.width)

        categories = self._decouple(features, word_vectors)
        update, nodes = GraphUpdate(dtype=self.dtype, name="graph"), categories
        for _ in range(self.num_steps):
            nodes = update(nodes, graph)
        vectors = layers.dense(
            jnp.concatenate([nodes, categories], axis=-1),
            self.width,
            dtype=self.dtype,
            name="fusion",
        )
        vectors = jnp.tanh(vectors.astype(jnp.float32))

        num_classes = len(word_vectors)
        kernel, bias = _Affine((num_classes, self.width), (num_classes,), name="classifiers")()
        return jnp.einsum("bcd,cd->bc", vectors, kernel, precision=_EXACT) + bias, vectors

    def _decouple(self, features: jax.Array, word_vectors: jax.Array) -> jax.Array:
        """Category vectors [batch, classes, width] of features [batch, positions, width]."""
        width = self.attention_width
        projected = layers.dense(
            features, width, use_bias=False, dtype=self.dtype, name="feature_projection"
        )
        words = layers.dense(
            word_vectors, width, use_bias=False, precision=_EXACT, name="word_projection"
        )
        # Two affine maps follow each other with nothing between: their product is applied instead,
        # at a small part of the cost. Their biases shift all positions alike, which the softmax
        # takes away, so that they have no effect (nor a gradient) in the released network either.
        hidden, _ = _Affine((width, width), (width,), name="attention_hidden")()
        score, _ = _Affine((width, 1), (1,), name="attention_score")()
        weights = jnp.matmul(hidden, score[:, 0], precision=_EXACT)
        return decouple(features, projected.astype(jnp.float32), words, weights)


class GraphUpdate(nn.Module):
    """One round of messages: a gated recurrent unit whose input comes from the other nodes.

    Every node hears the sum of the others weighted by the row of the graph, and that weighted by
    its column: `m = [A h ; A^T h]`. Calls share the parameters.

    Attributes:
      dtype: compute type of the six affine maps.
    """

    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, nodes: jax.Array, graph: jax.Array) -> jax.Array:
        """New nodes [batch, classes, width] in float32 of `nodes` and `graph` [classes, classes].

        Args:
          nodes: [batch, classes, width].
          graph: weight of node j in what node i hears [classes, classes].
        """

        def affine(name, inputs):
            out = layers.dense(inputs, nodes.shape[-1], dtype=self.dtype, name=name)
            return out.astype(jnp.float32)

        both_ways = [
            jnp.einsum(rule, graph, nodes, precision=_EXACT)
            for rule in ("ij,bjd->bid", "ji,bjd->bid")
        ]
        messages = jnp.concatenate(both_ways, axis=-1)
        update = nn.sigmoid(affine("update_message", messages) + affine("update_node", nodes))
        reset = nn.sigmoid(affine("reset_message", messages) + affine("reset_node", nodes))
        candidate = jnp.tanh(
            affine("candidate_message", messages) + affine("candidate_node", reset * nodes)
        )
        return (1 - update) * nodes + update * candidate


class _Affine(nn.Module):
    """Kernel and bias of affine maps that the caller applies; PyTorch's initial values.

    Attributes:
      kernel_shape: the axis that is summed over is the one that the bias lacks.
      bias_shape: shape of the bias.
    """

    kernel_shape: tuple[int, ...]
    bias_shape: tuple[int, ...]

    @nn.compact
    def __call__(self) -> tuple[jax.Array, jax.Array]:
        fan_in = math.prod(self.kernel_shape) // math.prod(self.bias_shape)
        kernel_init, bias_init = layers.INITIALIZERS["torch"](fan_in)
        return (
            self.param("kernel", kernel_init, self.kernel_shape, jnp.float32),
            self.param("bias", bias_init, self.bias_shape, jnp.float32),
        )
