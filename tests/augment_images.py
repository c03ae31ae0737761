"""Small uint8 images for the augmentation tests, and the way to Pillow and back."""

import numpy as np
from PIL import Image
from sklearn import datasets


def noise(count: int, height: int, width: int, channels: int) -> np.ndarray:
    """Independent uniform bytes."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, height, width, channels), dtype=np.uint8)


def smooth(count: int, height: int, width: int, channels: int) -> np.ndarray:
    """Waves with a little noise, each channel with its own contrast; some channels nearly flat."""
    rng = np.random.default_rng(1)
    y, x = np.mgrid[:height, :width] / max(height, width)
    phase, speed, height_of_wave = rng.random((3, count, 1, 1, channels))
    waves = np.sin(6 * phase + 8 * speed * x[..., None]) * np.cos(9 * phase * y[..., None])
    noise_level = rng.normal(0, 4, (count, height, width, channels))
    levels = 255 * rng.random((count, 1, 1, channels)) + 120 * height_of_wave * waves + noise_level
    return np.clip(levels, 0, 255).astype(np.uint8)


def digits(count: int) -> np.ndarray:
    """Real scans of handwritten digits, 8x8, grey."""
    return (datasets.load_digits().images[:count, ..., None] * 15.9).astype(np.uint8)


def positions(height: int, width: int) -> np.ndarray:
    """One image in which every pixel has its own colour and none is black."""
    ids = np.arange(1, height * width + 1).reshape(height, width)
    return np.stack([ids & 255, ids >> 8, np.full_like(ids, 7)], axis=-1).astype(np.uint8)


def to_pillow(image: np.ndarray) -> Image.Image:
    """`[height, width, channels]` to a grey or colour Pillow image."""
    return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)


def from_pillow(image: Image.Image) -> np.ndarray:
    """A grey or colour Pillow image to `[height, width, channels]`."""
    return np.asarray(image).reshape(image.height, image.width, -1)
