"""The random view of contrastive pretraining: crop, flip, colours, perhaps blur, solarisation."""

import jax
import jax.numpy as jnp

from pujax.augment import blur, colors, crops, draws, jitter, layout, tones, views


def contrastive_view(
    key: jax.Array,
    images: jax.Array,
    *,
    size: int = 0,
    area: tuple[float, float] = (0.08, 1.0),
    flip: bool = True,
    brightness: float = 0.8,
    contrast: float = 0.8,
    saturation: float = 0.8,
    hue: float = 0.2,
    jitter_probability: float = 0.8,
    grayscale_probability: float = 0.2,
    blur_probability: float = 0.0,
    solarize_probability: float = 0.0,
) -> jax.Array:
    """One random view of each image, of which SimCLR takes two.

    `random_resized_crop`, `random_flip`, `color_jitter`, `random_grayscale`, `random_blur` and
    `random_solarize`, in this order. The defaults are those of ImPULSeS's published code; its paper
    adds blur and solarisation without their probabilities. SimCLR is arXiv:2002.05709. Images with
    one channel are not changed by saturation, hue and greys.

    Args:
      key: random key.
      images: uint8 `[batch, height, width, channels]`.
      size: height and width of the views in pixels; 0 for those of the images.
      area: smallest and largest share of the image in the crop, in (0, 1].
      flip: whether to mirror at all; False for digits and other images with a fixed direction.
      brightness: largest distance of the factor from 1, in [0, 1].
      contrast: likewise.
      saturation: likewise.
      hue: largest shift of the hue in turns, in [0, 0.5].
      jitter_probability: of changing brightness, contrast, saturation and hue.
      grayscale_probability: of losing the colours.
      blur_probability: of the blur; at 0 the step is left out of the program.
      solarize_probability: of the solarisation; at 0 the step is left out of the program.

    Returns:
      uint8 `[batch, size, size, channels]`.

    Raises:
      ValueError: for images, a number or a range that is not accepted.
    """
    layout.check_images(images)
    side = layout.whole_number(size)
    if side is None or not 0 <= side <= layout.MAX_SIDE:
        raise ValueError(
            f"size is {size!r}; accepted: 1 to {layout.MAX_SIDE} whole pixels, or 0 for the size "
            "of the images"
        )
    jitter.check_sizes(brightness, contrast, saturation, hue)
    for name, probability in (
        ("jitter_probability", jitter_probability),
        ("grayscale_probability", grayscale_probability),
        ("blur_probability", blur_probability),
        ("solarize_probability", solarize_probability),
    ):
        draws.check_probability(name, probability)
    keys = jax.random.split(key, 6)
    side = side or None
    images = crops.random_resized_crop(keys[0], images, height=side, width=side, area=area)
    if flip:
        images = views.random_flip(keys[1], images)
    images = jitter.color_jitter(
        keys[2],
        images,
        brightness=brightness,
        contrast=contrast,
        saturation=saturation,
        hue=hue,
        probability=jitter_probability,
    )
    images = colors.random_grayscale(keys[3], images, probability=grayscale_probability)
    if blur_probability > 0:
        images = blur.random_blur(keys[4], images, probability=blur_probability)
    if solarize_probability > 0:
        images = random_solarize(keys[5], images, probability=solarize_probability)
    return images


def random_solarize(
    key: jax.Array, images: jax.Array, *, probability: float = 0.2, threshold: float = 128
) -> jax.Array:
    """`solarize` for each image with the same probability.

    Args:
      key: random key.
      images: uint8 `[batch, height, width, channels]`.
      probability: in [0, 1].
      threshold: levels from here on are inverted, in [0, 256].

    Returns:
      uint8 images of the same shape.

    Raises:
      ValueError: for images or a number that is not accepted.
    """
    layout.check_images(images)
    if not 0 <= threshold <= 256:
        raise ValueError(f"threshold is {threshold}; accepted: a grey level in [0, 256]")
    chosen = draws.chosen(key, images.shape[0], probability)
    return tones.solarize(images, jnp.where(chosen, float(threshold), 256.0))
