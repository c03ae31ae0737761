"""Image augmentation that runs inside the compiled training step.

Images are uint8 `[batch, height, width, channels]` with 1 or 3 channels and stay uint8 until
`normalize`, the one place where they become floating point. Every function works on a whole batch,
draws separately for each image, and treats each image independently of the others; random functions
take `key` first. Operations equal Pillow's, and use integers wherever rounding could differ between
devices or between compiled and uncompiled code; only the Gaussian blur uses floats, like
torchvision's.
"""

from pujax.augment.bicubic import resize_bicubic
from pujax.augment.blends import brightness, color, contrast, sharpness
from pujax.augment.blur import gaussian_blur, random_blur
from pujax.augment.colors import grayscale, hue, random_grayscale
from pujax.augment.contrastive_views import contrastive_view, random_solarize
from pujax.augment.crops import random_resized_crop
from pujax.augment.erase import cutout, random_cutout
from pujax.augment.geometry import rotate, shear_x, shear_y, translate_x, translate_y
from pujax.augment.jitter import Jitter, apply_jitter, color_jitter, random_jitter
from pujax.augment.multiscale import multiscale_crop
from pujax.augment.randaugment import (
    OPERATIONS,
    apply_operations,
    identity,
    rand_augment,
    random_operations,
)
from pujax.augment.resampling import resize, resized_crop
from pujax.augment.tones import autocontrast, equalize, posterize, solarize
from pujax.augment.views import normalize, random_crop, random_flip, strong_view, weak_view

__all__ = [
    "OPERATIONS",
    "Jitter",
    "apply_jitter",
    "apply_operations",
    "autocontrast",
    "brightness",
    "color",
    "color_jitter",
    "contrast",
    "contrastive_view",
    "cutout",
    "equalize",
    "gaussian_blur",
    "grayscale",
    "hue",
    "identity",
    "multiscale_crop",
    "normalize",
    "posterize",
    "rand_augment",
    "random_blur",
    "random_crop",
    "random_cutout",
    "random_flip",
    "random_grayscale",
    "random_jitter",
    "random_operations",
    "random_resized_crop",
    "random_solarize",
    "resize",
    "resize_bicubic",
    "resized_crop",
    "rotate",
    "sharpness",
    "shear_x",
    "shear_y",
    "solarize",
    "strong_view",
    "translate_x",
    "translate_y",
    "weak_view",
]
