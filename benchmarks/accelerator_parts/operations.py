"""What happens between steps, and the random views inside of them, each alone."""

import jax
import jax.numpy as jnp

from benchmarks.accelerator_parts import measuring, problems
from benchmarks.accelerator_parts.worker import Context
from pujax import augment, clustering
from pujax.data import batching
from pujax.training import sharding, train_step
from pujax.training.evaluation import evaluator

_CLUSTERS = (100, 5)  # of CIFAR-100 and CIFAR-10
_TINY_CLUSTERS = (4, 2)


def kmeans(context: Context) -> None:
    """Clusters as many points as LaGAM has embeddings."""
    mesh = sharding.make_mesh()
    tree = problems.config(problems.LAGAM, tiny=context.tiny)
    problem = problems.build(tree, problems.LAGAM, context, mesh)
    points = jax.random.normal(
        jax.random.key(1), [len(problem.setup.data.labeled), tree.method.embedding_dim]
    )
    found = {}
    for count in _TINY_CLUSTERS if context.tiny else _CLUSTERS:

        def cluster(count=count):
            return clustering.kmeans(
                jax.random.key(0),
                points,
                num_clusters=count,
                num_iterations=tree.method.kmeans_iterations,
                num_restarts=tree.method.kmeans_restarts,
            )

        found[str(count)] = measuring.seconds_per_call(cluster, tiny=context.tiny)
        context.record(points=points.shape, seconds_by_clusters=found)


def views(context: Context) -> None:
    """Random views of a batch, one call each."""
    side, sizes = (8, (16,)) if context.tiny else (32, (64, 512))
    found: dict[str, float] = {}
    for name, view in (
        ("weak", augment.weak_view),
        ("strong", augment.strong_view),
        ("contrastive", augment.contrastive_view),
    ):
        compiled = jax.jit(view)
        for size in sizes:
            key = jax.random.key(0)
            shape = (size, side, side, 3)
            images = jax.random.randint(key, shape, 0, 256).astype(jnp.uint8)

            def call(compiled=compiled, key=key, images=images):
                return compiled(key, images)

            found[f"{name}, {size} images"] = measuring.seconds_per_call(call, tiny=context.tiny)
            context.record(side=side, seconds_by_view=found)


def evaluation(context: Context) -> None:
    """Scores all images of CIFAR-10's training set as evaluation does."""
    mesh = sharding.make_mesh()
    found: dict[str, float] = {}
    for dtype in ("bfloat16", "float32"):
        tree = problems.config(problems.LAGAM, tiny=context.tiny, dtype=dtype)
        problem = problems.build(tree, problems.LAGAM, context, mesh)
        method, data = problem.setup.method, problem.setup.data
        arrays = sharding.replicate(data.training_data(), mesh)
        key = train_step.stage_key(train_step.run_key(0, mesh), train_step.INIT, 0)
        state = train_step.init_state(method.stages[0], key, None, arrays, mesh)
        predict = evaluator.compiled(method.predict, mesh)
        # The support set was taken out; all images are meant.
        inputs = jnp.concatenate([arrays.inputs, arrays.support_inputs])
        size = tree.run.eval_batch_size

        def score(state=state, predict=predict, inputs=inputs, size=size):
            return batching.map_batches(predict, inputs, batch_size=size, args=(state,))

        found[dtype] = measuring.seconds_per_call(score, tiny=context.tiny)
        context.record(images=len(inputs), inputs=problem.inputs, seconds=found)
