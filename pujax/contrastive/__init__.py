"""Contrastive losses between the views of a batch of images.

All functions take arrays of unit vectors: row `i` of each view belongs to image `i`. `nt_xent`,
`debiased` and `multiview_debiased` treat all views alike, every vector is an anchor. The losses of
LaGAM take their anchors from the first view only, the queries; they are compared with the pool
`concat(queries, keys)` of `2 * batch` vectors, so columns `j` and `batch + j` of every matrix stand
for the two views of image `j`.

Sums run over the global batch. Under `jit` one program works on whole arrays, however they are
laid out over a mesh, so an anchor on one device meets the views on all others without any
collective being written here, and the result is that of a single device. (Inside a `shard_map`
or a `pmap` a function sees its own part of the batch only: call them outside.) That holds for axes
of the type Auto, as `jax.sharding.Mesh` makes them. Axes of the type Explicit, which
`jax.make_mesh` makes by default (JAX 0.10 and 0.12), leave no product of an array with itself to
the compiler: there, set the mesh by `jax.set_mesh` and call
`jax.sharding.auto_axes(loss, out_sharding=PartitionSpec())`, arrays being positional arguments.

Similarities are computed in float32 (or float64) with exact matrix products also on accelerators,
whose default products keep about three digits, because neighbours are ranked by similarities and
labels depend on them. LaGAM's losses of the same arrays inside one compiled function share one
matrix product. `noise_robust_alignment` has no negatives: it pulls together what is predicted in
one class. Temperatures and other numbers are checked unless they are traced.
"""

from pujax.contrastive.alignment import noise_robust_alignment
from pujax.contrastive.groups import (
    group_contrast,
    instance_discrimination,
    latent_group_positives,
    log_probabilities,
)
from pujax.contrastive.views import debiased, multiview_debiased, nt_xent

__all__ = [
    "debiased",
    "group_contrast",
    "instance_discrimination",
    "latent_group_positives",
    "log_probabilities",
    "multiview_debiased",
    "noise_robust_alignment",
    "nt_xent",
]
