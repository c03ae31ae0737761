"""Trains a PU method: pujax train --config=lagam_digits [--workdir=DIR].

In a checkout `python train.py --config=configs/lagam_digits.py` is the same.
"""

import sys

from pujax import console, huge_pages, training, usage
from pujax.training import hosts, train_loop
from pujax.training.config import flags


def main(argv: list[str]) -> int:
    """Runs what the command line says; returns the process's exit status."""
    console.show_own_messages()
    if usage.is_asked(argv):
        console.message(usage.text("train", argv[0]))
        return 0
    try:
        config, workdir, name = flags.parse(argv)
        training.run(config, workdir, name=name)
    except KeyboardInterrupt:  # not while epochs are trained, where a first one saves
        sys.stderr.write(
            "interrupted; the same command with the same --workdir goes on from what was saved\n"
        )
        return 130
    except (ValueError, OSError, train_loop.NonFiniteError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except RuntimeError as error:  # that of JAX is one
        if not hosts.is_out_of_memory(error):
            raise
        sys.stderr.write(
            f"a device has too little memory ({console.first_line(error)}); accepted: smaller "
            "batches (method.batch_size, run.eval_batch_size), a smaller network, or "
            "data.streaming=on for images\n"
        )
        return 2
    return 0


if __name__ == "__main__":
    huge_pages.restart()
    sys.exit(main(sys.argv))
