"""Multi-label data in files and configurations that train on them within seconds."""

import json

import numpy as np
from PIL import Image

from pujax.training import config as config_lib

TIMING = ("seconds", "examples_per_second")


def write_table(path, *, rows=120, never_tested=False):
    """An archive of rows of numbers with three labels, told apart by two numbers each.

    With `never_tested` a fourth label is on every second training row and on no test row, and a
    fifth is always absent.
    """
    rng = np.random.default_rng(0)
    labels = (rng.random([2 * rows, 3]) < 0.4).astype(np.int8)
    inputs = rng.normal(0, 0.5, [2 * rows, 6]) + np.repeat(labels, 2, axis=1) * 2
    if never_tested:
        more = np.zeros([2 * rows, 2], np.int8)
        more[:rows:2, 0] = 1
        labels = np.concatenate([labels, more], axis=1)
    names = ("sea", "sun", "sand", "once", "never")[: labels.shape[1]]
    arrays = {"X_train": inputs[:rows], "X_test": inputs[rows:], "label_names": names}
    np.savez(path, Y_train=labels[:rows], Y_test=labels[rows:], **arrays)
    return str(path)


def write_images(path, *, rows=96, side=8):
    """An archive of grey images whose upper and lower halves are bright or not."""
    rng = np.random.default_rng(0)
    labels = (rng.random([2 * rows, 2]) < 0.4).astype(np.int8)
    images = rng.normal(70, 20, [2 * rows, side, side])
    images[:, : side // 2] += 120 * labels[:, :1, None]
    images[:, side // 2 :] += 120 * labels[:, 1:, None]
    images = np.clip(images, 0, 255).astype(np.uint8)
    parts = {"X_train": images[:rows], "X_test": images[rows:]}
    np.savez(path, Y_train=labels[:rows], Y_test=labels[rows:], **parts)
    return str(path)


def write_folders(root, *, train=40, test=21):
    """Class folders of small JPEG files: red, green or both at once."""
    rng = np.random.default_rng(0)
    for split, count in (("train", train), ("test", test)):
        for i in range(count):
            present = [name for name in ("green", "red") if rng.random() < 0.5]
            pixels = rng.normal(60, 15, [14, 11 + i % 5, 3])
            pixels[..., 0] += 120 * ("red" in present)
            pixels[..., 1] += 120 * ("green" in present)
            image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
            for name in present or ["_none"]:
                folder = root / split / name
                folder.mkdir(parents=True, exist_ok=True)
                image.save(folder / f"{i}.jpg")
    return str(root)


def table_config(path, method="pu_mlc", **run):
    """A perceptron on an archive of `write_table`."""
    config = config_lib.default_config(method)
    config.data.update({"source": "multilabel", "dir": str(path), "known_ratio": 0.5})
    config.model.name = "mlp"
    config.model.options = {"hidden": (8,), "batch_norm": True}
    small = {"num_epochs": 3, "batch_size": 24, "augment": False, "average_decay": 0.9}
    config.method.update(small | {"learning_rate": 0.01})
    config.run.update({"figures": False, "checkpoint_every": 1} | run)
    return config


def image_config(path, method="pu_mlc", **run):
    """A small convolutional network on an archive of `write_images`."""
    config = table_config(path, method, **run)
    config.model.name = "small_cnn"
    config.model.options = {"channels": (4, 8, 8), "hidden": (16,)}
    return config


def folder_config(path, method="pu_mlc", **run):
    """A small residual network on the streamed images of `write_folders`, cropped on the host."""
    config = table_config(path, method, **run)
    config.data.update({"image_size": 8, "load_size": 10})
    config.model.name = "resnet_small"
    config.model.options = {"width": 4, "stage_sizes": (1,)}
    config.method.update({"augment": True, "batch_size": 8, "crop_sizes": (10, 7)})
    return config


def rows_in(folder):
    """Metrics of a run without the wall-clock columns."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(x).items() if k not in TIMING} for x in lines]
