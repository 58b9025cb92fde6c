"""Commands on data sets: `trimaran data …`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from shards.kinds import DocumentRule, FormatName
from trimaran.cli import common
from trimaran.cli.common import Json, Offline, command, emit, say, terminal
from trimaran.errors import RunError, UsageError, nearest, unknown_name

app = typer.Typer(
    help="Get, pack, verify and list data sets.\n\nExample: trimaran data get fashion-mnist",
    no_args_is_help=True, rich_markup_mode=None,
)
common.app.add_typer(app, name="data")

Workers = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Number of processes; default: one for each usable "
                                          "core."),
]


@command(app, "list")
def data_list(as_json: Json = False) -> None:
    """List data sets and whether they are on this machine.

    Example: trimaran data list
    """
    from trimaran.inventory import catalog

    emit(catalog.complete("data") if as_json else catalog.table("data"), "data", as_json)


@command(app, "get", network=True)
def data_get(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA", autocompletion=common.complete("data"), show_default=False,
            help="Name of a data set; with --for, by default all that the recipe reads.",
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="PATH",
            help="Your copy of the files: their folder, or an archive as the publisher sends it. A"
            " licensed data set needs the folder.",
        ),
    ] = None,
    kind: Annotated[
        FormatName | None,
        typer.Option("--format", help="Format of the shards; default: that of the data set."),
    ] = None,
    wanted_by: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="RECIPE", autocompletion=common.complete("recipes"),
            help="Use the format that this recipe needs.",
        ),
    ] = None,
    offline: Offline = False,
) -> None:
    """Download, verify and pack a data set.

    A licensed data set is not downloaded: without --from, the command prints how to get its files.
    With --from, nothing is downloaded.
    Several formats of one data set can be on one machine.

    Example: trimaran data get fashion-mnist
    """
    from trimaran.data import cache, contracts

    for one, form in _asked(name, kind, wanted_by).items():
        say(cache.get(contracts.load(one), offline=offline, reporter=terminal(), source=source,
                      form=form))


def _asked(
    name: str | None, kind: FormatName | None, recipe: str | None
) -> Mapping[str, FormatName | None]:
    """Return the format of each data set to get, keyed by its name; None is the default format."""
    from trimaran.recipes import library

    if recipe is None:
        if name is None:
            raise UsageError("data get needs the name of a data set", code="argument-missing",
                             hint="`trimaran data list` prints the names; --for RECIPE gets all"
                             " data sets of a recipe")
        return {name: kind}
    if kind is not None:
        raise UsageError("--format and --for exclude each other: both determine the format",
                         code="arguments-conflict", hint="leave one of them out")
    known = library.load(recipe).recipe if "@" in recipe else library.definition(recipe)
    wanted = {one: use.format for one, use in known.data.items()}
    if name is None:
        if not wanted:
            raise UsageError(f"{recipe} reads no data set", code="data-unused",
                             hint="leave out --for, and name a data set")
        return wanted
    if name not in wanted:
        raise UsageError(f"{recipe} reads no data set '{name}'", code="data-unused",
                         hint=nearest(name, wanted) if wanted else "the recipe reads no data set")
    return {name: wanted[name]}


@app.command("pack")
def data_pack(
    source: Annotated[
        Path,
        typer.Argument(
            help="Image folder (SPLIT/CLASS/*.jpg), or folder of the ImageNet tars; with --format"
            " tokens, a file of text or a folder of such files."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to make.")],
    kind: Annotated[
        FormatName, typer.Option("--format", help="Format of the shards.")
    ] = "webdataset",
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the data set; default: the name of SOURCE."),
    ] = None,
    resize: Annotated[
        str | None,
        typer.Option(
            metavar="PIXELS|WxH",
            help="Scale down images whose shorter side is longer than PIXELS, or scale all to WxH.",
        ),
    ] = None,
    quality: Annotated[
        int, typer.Option(min=1, max=95, help="JPEG quality of resized images and of video frames.")
    ] = 95,
    samples_per_shard: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of samples in a shard; one process packs a "
                                              "shard."),
    ] = None,
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad", help="Skip undecodable images, or documents that are empty or not UTF-8;"
                               " skipped.txt lists them.",
        ),
    ] = False,
    skip_missing: Annotated[
        bool,
        typer.Option(
            "--skip-missing", help="Skip images that a table names but that do not exist."
        ),
    ] = False,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV file with the columns file and classes (any number, joined by |). With a"
            " column patient, a patient in two splits is an error.",
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="All classes that --labels may name, joined by |, in their order. Any other class"
            " is an error.",
        ),
    ] = None,
    sequences: Annotated[
        bool,
        typer.Option("--sequences", help="Each SPLIT/SEQUENCE/ or SPLIT/VIDEO.mp4 is one sample."),
    ] = False,
    no_train: Annotated[
        bool, typer.Option("--no-train", help="Accept a source without training images, to "
                                              "evaluate on.")
    ] = False,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="bytes|bpe:SIZE|FILE",
            help="Tokenizer of a text: its bytes, a byte-level BPE of SIZE tokens trained on it, or"
            " a tokenizer.json; default: bpe:8192.",
        ),
    ] = None,
    documents: Annotated[
        DocumentRule | None,
        typer.Option(
            help="What a document of a text is: a file (default), a line, the lines between empty"
            " lines, or an entry of a dictionary of dictd. In JSON lines, each line is one.",
        ),
    ] = None,
    held_out: Annotated[
        int | None,
        typer.Option(
            min=1, max=99, metavar="PERCENT",
            help="Percentage of the documents in the split val, by their hash; default: 1.",
        ),
    ] = None,
    workers: Workers = None,
) -> None:
    """Pack images or a text into shards with an index, counts and checksums.

    After an interrupt, the same command continues. Without --resize, files are packed as they are,
    except that images with an EXIF orientation are turned upright. Images are shuffled, documents
    keep their order; the same source gives the same bytes.

    Example: trimaran data pack photos -o packed --resize 480 --quality 95

    Example: trimaran data pack texts -o packed --format tokens --tokenizer bpe:8192
    """
    from trimaran import pool
    from trimaran.data.packing import ilsvrc, image_folders, labelled, packer, plan

    texts = {"--tokenizer": tokenizer, "--documents": documents, "--held-out": held_out}
    if kind == "tokens":
        images = {"--resize": resize, "--quality": quality != 95, "--labels": labels,
                  "--classes": classes, "--sequences": sequences, "--skip-missing": skip_missing,
                  "--no-train": no_train}
        _refuse_options(images, "--format tokens packs a text")
        _pack_text(source, out, name, samples_per_shard, tokenizer or "bpe:8192",
                   documents or "file", held_out, skip_bad, workers)
        return
    _refuse_options(texts, f"--format {kind} packs images")
    processes, reporter = workers or pool.cores(), terminal()
    if name is None:
        name = "imagenet-2012" if ilsvrc.is_here(source) else plan.name_of(source)
    options = plan.Options(
        name, kind, plan.resize_of(resize) if resize else None, quality, samples_per_shard
    )
    listing = image_folders.listing_of(
        source, out, labels=labels, in_sequences=sequences, untrained=no_train,
        classes=None if classes is None else labelled.classes_of(classes),
        skip_missing=skip_missing, workers=processes, reporter=reporter,
    )
    packer.pack(listing, out, options, workers=processes, skip_bad=skip_bad, reporter=reporter)
    say(out)


def _refuse_options(given: Mapping[str, object], why: str) -> None:
    """Raise UsageError if one of the options has a value."""
    if names := [name for name, value in given.items() if value not in (None, False)]:
        raise UsageError(f"{', '.join(names)}: not with this format: {why}",
                         code="arguments-conflict", hint="leave it out, or choose another --format")


def _pack_text(
    source: Path, out: Path, name: str | None, samples_per_shard: int | None, tokenizer: str,
    rule: DocumentRule, held_out: int | None, skip_bad: bool, workers: int | None,
) -> None:
    from trimaran.data.packing import class_folders, documents, plan, text_packer, tokenizing

    if workers is not None:
        tokenizing.use_threads(workers)
    class_folders.refuse_within(source, out)
    text = documents.listed(source, rule, held_out)
    options = text_packer.Options(name or plan.name_of(source), samples_per_shard)
    text_packer.pack(text, out, options, tokenizing.choice(tokenizer), skip_bad=skip_bad,
                     reporter=terminal())
    say(out)


@command(app, "verify")
def data_verify(
    what: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="Name of a data set in the cache, or a folder of packed data.",
            autocompletion=common.complete("data"), show_default=False,
        ),
    ],
    workers: Workers = None,
) -> None:
    """Check the hashes, indexes, counts and samples of a data set.

    Every image is decoded, and every token read.

    Example: trimaran data verify fashion-mnist
    """
    from trimaran.data import cache, contracts, dataset_json

    place = Path(what)
    if what in contracts.names():
        contract = contracts.load(what)
        faults = cache.verify(contract, reporter=terminal(), workers=workers)
        forms = cache.damaged(contract) or [contract.own_format]
        hint = f"{'; '.join(cache.getting(contract, form) for form in forms)} repairs it"
    elif place.is_dir():
        faults = dataset_json.verify_folder(
            None, place, records=True, reporter=terminal(), workers=workers
        )
        hint = "pack it again into a new folder"
    else:
        raise unknown_name("data set or folder", what, contracts.names())
    if faults:
        raise RunError("\n".join(faults), code="data-damaged", hint=hint)
    say(f"{what}: all files are intact")


@app.command("squashfs")
def data_squashfs(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A packed data set.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Image to make.")],
) -> None:
    """Make one SquashFS image of a packed data set.

    Use it on parallel file systems, which are slow with many files. `trimaran run --data FILE`
    mounts the image for the app (Apptainer only).

    Example: trimaran data squashfs packed -o packed.sqfs
    """
    from trimaran.data import squashfs

    squashfs.make(folder, out, terminal())
    say(out)
