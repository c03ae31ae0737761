"""Images per second that this machine decodes for training: `python benchmarks/streaming.py`.

Writes synthetic JPEG files of the size of photographs to a temporary folder, then times the test
transform (resize to 448) and the training transform of PU-MLC (resize to 512, crop of 512 to 256,
resize to 448) in a plain loop and streamed in batches to the device, by the number of threads. The
files are in the file system's cache when they are timed: a slow disk is not measured.
"""

import argparse
import os
import platform
import tempfile
import time

import jax
import numpy as np
import PIL
from jax.sharding import SingleDeviceSharding
from PIL import Image

from pujax.data import streaming
from pujax.data.image_files import ImageFiles

CROP_SIZES = (512, 448, 384, 320, 256)


def write_photos(folder: str, count: int) -> ImageFiles:
    """Smooth random pictures with some grain, 500 x 375 pixels, quality 90."""
    rng = np.random.default_rng(0)
    paths = []
    for i in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8))
        smooth = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC), np.float32)
        pixels = smooth + rng.normal(scale=8, size=(375, 500, 1))
        paths.append(os.path.join(folder, f"{i:05d}.jpg"))
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(paths[-1], quality=90)
    return ImageFiles(tuple(paths), side=448, load_side=512)


def per_second(run, count: int, repeats: int) -> float:
    """Images per second of the fastest of several calls of `run`, each of `count` images."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return count / min(times)


def main() -> None:
    """Reads the flags and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--repeats", type=int, default=3)
    flags = parser.parse_args()
    count = flags.images // flags.batch * flags.batch
    device = jax.devices()[0]
    sharding = SingleDeviceSharding(device)
    ids = np.arange(count, dtype=np.int32).reshape(-1, flags.batch)

    with tempfile.TemporaryDirectory() as folder:
        files = write_photos(folder, count)
        kilobytes = sum(os.path.getsize(path) for path in files.paths) / count / 1000

        def loop(crop):
            for i in range(count):
                if crop:
                    files.read_crop(i, np.random.default_rng(i), CROP_SIZES)
                else:
                    files.read(i)

        def streamed(crop, threads):
            for batch in streaming.train_batches(
                files,
                ids,
                seed=0,
                epoch=0,
                crop_sizes=CROP_SIZES if crop else (),
                sharding=sharding,
                num_threads=threads,
            ):
                batch.block_until_ready()

        print(
            f"{platform.machine()}, {os.cpu_count()} cores, to {device.platform}, pillow "
            f"{PIL.__version__}, jax {jax.__version__}; {count} files of {kilobytes:.0f} kB"
        )
        print(f"{'images per second':<20}{'test':>10}{'training':>10}")
        runs = {"plain loop": loop}
        for threads in flags.threads:
            runs[f"{threads} threads"] = lambda crop, threads=threads: streamed(crop, threads)
        for name, run in runs.items():
            speeds = (
                per_second(lambda run=run, crop=crop: run(crop), count, flags.repeats)
                for crop in (False, True)
            )
            print(f"{name:<20}" + "".join(f"{speed:>10.0f}" for speed in speeds), flush=True)


if __name__ == "__main__":
    main()
