"""Images as rows of bytes, the form in which a compiled step looks batches up without a copy.

A TPU keeps an array of images `[n, height, width, channels]` in tiles over its last axes. To gather
some of the images, a program first copies all of them into another order, at every call. Rows
`[n, height * width * channels]` are gathered as they lie, and only the batch is brought into shape.
"""

import math
from typing import Any

import jax
import numpy as np


@jax.tree_util.register_pytree_node_class
class FlatImages:
    """Images `[..., n, height, width, channels]`, stored as `[..., n, numbers]`.

    It is a pytree of that one array, and it takes the place of an array of images wherever only
    some of them are asked for.

    Attributes:
      rows: the array, on the host or on devices.
      image_shape: of one image.
    """

    def __init__(self, rows: Any, image_shape: tuple[int, ...]):
        self.rows = rows
        self.image_shape = image_shape

    def tree_flatten(self) -> tuple[tuple[Any], tuple[int, ...]]:
        """Children and static part, as JAX asks for them."""
        return (self.rows,), self.image_shape

    @classmethod
    def tree_unflatten(cls, image_shape: tuple[int, ...], children: tuple[Any]) -> "FlatImages":
        """The inverse."""
        return cls(children[0], image_shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the images."""
        return (*self.rows.shape[:-1], *self.image_shape)

    @property
    def dtype(self) -> np.dtype:
        """That of the pixels."""
        return self.rows.dtype

    def __len__(self) -> int:
        return self.rows.shape[0]

    def __getitem__(self, ids: Any) -> Any:
        """Some of the images, as an array; `ids` is of the first axis."""
        return self.unflatten(self.rows[ids])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        images = self.unflatten(np.asarray(self.rows))
        return images if dtype is None else images.astype(dtype)

    def unflatten(self, rows: Any) -> Any:
        """Rows `[..., numbers]` as images."""
        return rows.reshape(*rows.shape[:-1], *self.image_shape)


def flatten(inputs: Any) -> Any:
    """Images as `FlatImages`; other inputs as they are.

    Args:
      inputs: an array `[n, height, width, channels]`, or `[n, features]`.
    """
    if len(inputs.shape) != 4:
        return inputs
    return FlatImages(inputs.reshape(len(inputs), math.prod(inputs.shape[1:])), inputs.shape[1:])
