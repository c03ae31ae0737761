"""What the commands say to `--help`: all texts in one place that imports nothing heavy.

`tests/test_commands.py` compares what is said here a second time with where it is defined.
"""

import pathlib
import textwrap
from collections.abc import Callable, Mapping, Sequence

from pujax import catalogue, configs

_TRAIN = """usage: {program} --config=NAME|FILE[:key=value,...] [--workdir=DIR]
                        [--config.SECTION.FIELD=VALUE ...]
  --config=NAME        a configuration of pujax, listed below
  --config=FILE        a Python file with get_config([ARGUMENT]), as in configs/
  --workdir=DIR        folder of the run, which goes on if it was stopped; default: runs/NAME-TIME
  --config.SECTION.FIELD=VALUE  changes a field of the configuration
  --help               shows this text

Some fields of every run, with their defaults, which a configuration may change:
  --config.seed=0                  seed of everything random
  --config.init_from=''            a finished run whose encoder networks start from
  --config.data.source='digits'    which data
  --config.data.dir=''             where their files are or go; '' is the user's cache
  --config.data.num_labeled=100    labelled positives; 0 takes the labels as they are
  --config.data.prior=None         share of positives; None counts it, 'auto' estimates it
  --config.model.name='small_cnn'  network
  --config.model.dtype='float32'   or 'bfloat16'
  --config.run.compare=''          methods to train on the same split afterwards
  --config.run.selection='auto'    which epoch is reported; 'last', or a rule on a part held out
  --config.run.stop_after_epoch=0  ends cleanly after so many epochs in all; 0 is never
  --config.run.figures=True        whether figures are drawn
Those of a method are --config.method.FIELD; `pujax methods NAME` lists them with their defaults.

Methods, of one label per example as --config=baseline:method=NAME, of several as
--config=pu_mlc:method=NAME; a module of your own is named method=PACKAGE.MODULE:
{methods}

Configurations:
{configs}

Examples:
  {program} --config=lagam_digits
  {program} --config=baseline:method=nnpu,task=a9a --config.seed=3 --workdir=runs/nnpu_a9a
  {program} --config=own_table --config.data.path=customers.csv --config.data.label=is_fraud"""

_PREDICT = """usage: {program} RUN FILE|FOLDER [--output=FILE.csv] [--decide=RULE]
  RUN                  folder of a finished run on one's own rows or images, or its model/; or
                       hf://OWNER/NAME, a model on the Hugging Face Hub, which is downloaded
  FILE                 new rows in any format that training reads, with the same columns; the
                       label's column may be there or not
  FOLDER               for a model of images: all images in it and in the folders below; as FILE
                       it takes one image, or an .npy of uint8 [n, height, width, channels]
  --output=FILE.csv    where to write, a new file or earlier predictions; default: scores.csv in
                       the current folder
  --decide=RULE        'score:0', 'probability:0.5', 'share:0.02', 'top:100'; default: the run's
  --unreadable=skip    keeps damaged images as rows without a score; default: fail
  --revision=COMMIT    which of a model on the Hub; default: the newest
  --help               shows this text
Writes the id under its own name, score, probability, rank, decision, and both ends of the interval
of the probability (probability_low, probability_high), in the rows' order. Of several labels per
example: the id, a 1 or 0 per label, and score_LABEL for each; a rule holds for each by itself.

Examples:
  {program} runs/fraud next_month.csv
  {program} runs/fraud next_month.csv --output=first_hundred.csv --decide=top:100
  {program} runs/scans new_scans/ --output=scores.csv --unreadable=skip"""

_PRIORS = """usage: {program} DATA [--label=COLUMN] [--positive=VALUE] [--methods=A,B]
  DATA                 a file as the configuration own_table takes it (.csv, .tsv, .parquet, .npz,
                       .npy, svmlight); what is no labelled positive is unlabeled
  --label=COLUMN       the label's column; default: the last one of a table
  --positive=VALUE     the word that marks a positive, where it is not 1, yes, true or positive
  --id_column=COLUMN   the column that names a row and is no feature; 'none' keeps all columns;
                       default: what looks like one is set aside, and said
  --leave_out=A,B      columns that are no features
  --words=A,B          columns whose cells are words, whatever they look like, such as postcodes
  --methods=A,B        estimators, all by default, of:
{estimators}
  --resamples=100      bootstrap resamples of the 90 % intervals, from 20; a fifth of it, but at
                       least 20, where each is expensive (km1, km2, tice, alphamax, out_of_bag);
                       0 for no intervals
  --seed=0             seed of everything random
  --help               shows this text
Exit status: 0, 1 where no estimator can work on the data, 2 for bad input.

Examples:
  {program} customers.csv --label=is_fraud
  {program} customers.parquet --label=kind --positive=fraud --methods=km2,best_bin,ted_n
  {program} samples.npz --resamples=0"""
ESTIMATORS = (
    *("km1", "km2", "tice", "pen_l1", "pearson", "ted_n", "out_of_bag"),
    *("elkan_noto_e1", "elkan_noto_e2", "elkan_noto_e3", "ratio", "best_bin", "alphamax"),
)
"""`pujax.priors.NAMES`."""

_CHECK = """usage: {program} DATA [--label=COLUMN] [--positive=VALUE] [--json=FILE]
  DATA                 a file as the configuration own_table takes it (.csv, .tsv, .parquet, .npz,
                       .npy, svmlight), or a folder of images with positive/ and unlabeled/
  --label=COLUMN       the label's column; needed for tables with named columns
  --positive=VALUE     the word that marks a positive, where it is not 1, yes, true or positive
  --id_column=COLUMN   the column that names a row and is no feature; 'none' keeps all columns;
                       default: what looks like one is set aside, and said
  --leave_out=A,B      columns that are no features
  --words=A,B          columns whose cells are words, whatever they look like, such as postcodes
  --json=FILE          writes the findings as JSON, too; a new file, or an earlier result
  --seed=0             seed of everything random
  --help               shows this text
Exit status: 0 without errors and warnings, 1 with warnings, 3 with errors, 2 for bad input.

Examples:
  {program} customers.csv --label=is_fraud
  {program} customers.csv --label=kind --positive=fraud --json=found.json
  {program} scans/"""

_REPORT = """usage: {program} RUN [RUN...] [--out=FILE.html] [--noexamples]
  RUN                  folder of a run, finished or not, or of a sweep, which stands for its runs;
                       of several, differences are from the first, paired by data and split
  --out=FILE.html      where to write; default: report.html in the first folder
  --noexamples         leaves out rows, cells and pictures of the data
  --help               shows this text
Writes one page that needs no network: a verdict, settings, counts, curves, calibration, examples.
Trains and downloads nothing.

Examples:
  {program} runs/fraud
  {program} runs/fraud --noexamples --out=for_the_board.html
  {program} runs/nnpu_0 runs/vpu_0 runs/lagam_0 --out=three.html"""

_SWEEP = """usage: {program} --workdir=DIR (--plan=FILE | --config=FILE[:key=value,...])
  --workdir=DIR        folder of the results; a dry run needs none
  --plan=FILE[:ARG]    a Python file with get_plan([ARG]) -> pujax.sweep.Plan, or a plan of pujax
                       by its name, listed below
  --config=FILE        a configuration file whose argument has `method`, and `task` for --tasks, or
                       one of pujax by its name, such as baseline or own_table
  --methods=A,B        with --config: values of `method`
  --tasks=A,B          with --config: values of `task`
  --rules=A,B          with --config: which epochs to report; what each run does (reported)
                       where a part is held out or the rows are your own, else the last
  --reference=METHOD   with --config: the method that the others are compared with, seed by seed
  --seeds=0,1,2        seeds of every cell (0,1,2; a plan has its own)
  --set=FIELD=VALUE    sets a field of every configuration; may be repeated. With --only another
                       cell may lack the field
  --data_dir=FOLDER    where the data are; SOURCE=FOLDER,SOURCE=FOLDER for several places
  --only=TEXT          trains only the cell named TEXT, or those whose name holds it
  --dry_run            says what would be trained; downloads and writes nothing
  --sequential         trains new seeds one after another
  --shard=I/N          trains only every N-th cell from number I on, I from 0 to N - 1
  --launch=ray         one task of Ray per cell; waits for all of them
  --launch=slurm       one job of an array per cell; waits for all of them
  --cpus_per_cell=1    with --launch: cores
  --gpus_per_cell=0    with --launch: GPUs, which share the batches of one cell
  --minutes_per_cell=1440  with --launch=slurm: after so many a job saves and goes on in a new one
  --sbatch=KEY=VALUE   with --launch=slurm: any option of sbatch; may be repeated
  --help               shows this text

Plans:
{plans}

Examples:
  {program} --plan=digits --workdir=runs/digits
  {program} --plan=gradpu_table1 --workdir=runs/table1 --data_dir=mnist=A,fashion_mnist=B --dry_run
  {program} --config=baseline --methods=naive,nnpu,vpu --tasks=digits,a9a --workdir=runs/three"""

_COMPILE = """usage: {program} --config=NAME|FILE[:key=value,...] --topology=NAME
  --config=NAME        what would be trained, by its name or as a file; no data has to be there
  --config.FIELD=VALUE changes a field, as in training
  --topology=NAME      {topologies}
  --hlo=FILE           writes the optimized HLO of all programs; a new file, or an earlier result
  --json=FILE          writes all figures; likewise
  --help               shows this text
Nothing is computed on an accelerator, and none is needed; the compilers are in the packages
pujax[aot-tpu] and pujax[aot-gpu].

Examples:
  {program} --config=lagam_cifar --topology=h200 --config.model.dtype=bfloat16
  {program} --config=lagam_cifar:backbone=cnn7 --topology=v5e:4x4 --json=v5e.json
  {program} --config=baseline:method=nnpu,backbone=mlp --topology=cpu:8"""
TOPOLOGIES = (
    "h200, h100, a100, or as many on one machine as after a colon (h200:8); v5e or v6e with a "
    "grid of chips (v5e:4x4), v4 or v5p with one of three dimensions (v5p:2x2x4); cpu:N for this "
    "machine's CPU as N devices"
)
"""`pujax.aot.topologies.ACCEPTED`."""

_METHODS = """usage: {program} [NAME] [--json]
  NAME                 shows the fields of this method with their defaults; of a module of your own
                       by PACKAGE.MODULE
  --json               writes the same for programs
  --help               shows this text

Examples:
  {program}
  {program} nnpu
  {program} lagam --json"""

_TEXTS = {
    "train": _TRAIN,
    "predict": _PREDICT,
    "check": _CHECK,
    "report": _REPORT,
    "priors": _PRIORS,
    "sweep": _SWEEP,
    "compile": _COMPILE,
    "methods": _METHODS,
}
_MODULES = {command: f"python -m pujax.{command}" for command in _TEXTS}
_MODULES["train"] = "python train.py"
_MODULES["report"] = "python -m pujax.reports"  # pujax.report is the table of several seeds


def texts() -> tuple[str, ...]:
    """Commands that `text` knows."""
    return tuple(_TEXTS)


def text(command: str, program: str = "") -> str:
    """The help text of a command.

    Args:
      command: one of `texts`.
      program: first word of the command line. That of `pujax COMMAND` is shown as it is, another
        one as the way to run the module.
    """
    shown = program if program == f"pujax {command}" else _MODULES[command]
    result = _TEXTS[command].replace("{program}", shown)
    for place, made in _LISTS.items():
        if place in result:
            result = result.replace(place, made())
    return result


def is_asked(argv: Sequence[str]) -> bool:
    """Whether a command line, program name first, asks for the help text."""
    return any(word in ("--help", "-help", "-h") for word in argv[1:])


def _summaries(files: Mapping[str, pathlib.Path]) -> str:
    """Names and the first lines of the files' docstrings."""
    return catalogue.lines((name, catalogue.summary(path)) for name, path in files.items())


def _methods_of_all_kinds() -> str:
    text = catalogue.lines(
        (method.name, f"{method.summary} [{method.kind}]") for method in catalogue.methods()
    )
    return "\n".join(filter(None, (text, catalogue.unreadable())))


def _wrapped(names: Sequence[str]) -> str:
    indent = " " * 23
    return textwrap.fill(", ".join(names), 100, initial_indent=indent, subsequent_indent=indent)


# Parts of the texts that are made when they are asked for.
_LISTS: dict[str, Callable[[], str]] = {
    "{methods}": _methods_of_all_kinds,
    "{configs}": lambda: _summaries(configs.files()),
    "{plans}": lambda: _summaries(configs.plans()),
    "{estimators}": lambda: _wrapped(ESTIMATORS),
    "{topologies}": lambda: TOPOLOGIES,
}
