"""Several networks of one architecture, whose parameters have a leading axis."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pujax.methods._common.network import Network
from pujax.models.encoder import Encoder


class Networks(NamedTuple):
    """An ensemble; trees of its parameters and outputs have a leading axis `[num_nets]`.

    Attributes:
      network: what each of them is.
      num_nets: how many.
    """

    network: Network
    num_nets: int

    def each(self, function: Callable[..., Any], *trees: Any) -> Any:
        """`function` of each network's slice of `trees`, results stacked on a leading axis.

        One after the other and not under vmap, which would make every convolution a grouped one:
        four times slower on a CPU with two networks.
        """
        slices = [jax.tree.map(lambda x, k=k: x[k], trees) for k in range(self.num_nets)]
        return jax.tree.map(lambda *parts: jnp.stack(parts), *(function(*s) for s in slices))

    def init(self, seeds: jax.Array, inputs: jax.Array, encoder: Encoder | None) -> tuple[Any, Any]:
        """Parameters and batch statistics to start from.

        Args:
          seeds: uint32 `[num_nets, ...]`, key data.
          inputs: raw inputs `[batch, ...]`.
          encoder: see `Network.init`.
        """

        def init(seed):
            return self.network.init(jax.random.wrap_key_data(seed), inputs, encoder)

        return self.each(init, seeds)

    def infer(self, params: Any, batch_stats: Any, inputs: jax.Array) -> Any:
        """Outputs of all networks on raw inputs with running statistics."""
        return self.each(lambda p, b: self.network.infer(p, b, inputs), params, batch_stats)
