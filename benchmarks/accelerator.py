"""What a GPU or TPU does with this project, part by part.

    python benchmarks/accelerator.py --out=DIR --minutes=9 --data_dir=cifar10=FOLDER,mnist=FOLDER

Parts run in order of value, one JSON file each in --out. The same command goes on: finished parts
are skipped, training continues from its checkpoint. It ends with a table of all that is there.
"""

import pathlib
import sys

if __name__ == "__main__":
    # A checkout that is not installed will do; the parts run in processes of their own.
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    from benchmarks.accelerator_parts import command

    sys.exit(command.main(sys.argv[1:]))
