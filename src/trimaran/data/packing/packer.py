"""Pack the samples of a listing into a folder, with several processes.

A shard is written in `.packing/` and moved into the folder when it is complete. Then a note with
its hash is written to `.packing/`. The next call resumes a killed packing: it keeps each shard
whose hash equals the hash in its note. `dataset.json` is written last, so that an unfinished folder
is not a data set. The bytes depend on the source, the options and the versions of the libraries,
but not on the number of workers.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shards import formats
from shards.description import Dataset, ImageFacts, Origin, PackedSplit, Shard
from shards.formats.records import Record
from trimaran import files, pool
from trimaran.data import dataset_json
from trimaran.data.packing import listing, pictures, sequences, unfinished, videos
from trimaran.data.packing.listing import Listing
from trimaran.data.packing.plan import ORDER_SEED, Bad, Done, Job, Options, shuffled
from trimaran.errors import RunError, UsageError
from trimaran.parsing import parse_json
from trimaran.reporting import Advance, Reporter

SKIPPED = "skipped.txt"
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
"""Mean and standard deviation of each RGB channel, for every data set that is packed here.

The values are those of ImageNet's training images in torchvision's reference training.
"""


def pack(
    source: Listing, folder: Path, options: Options, *, workers: int, skip_bad: bool,
    reporter: Reporter,
) -> Dataset:
    """Pack `source` into `folder`, and return the description of the packed data set.

    Args:
        source: the samples.
        folder: a new or empty folder, or the folder of an unfinished packing of the same source.
        options: format, image size and number of samples in a shard.
        workers: number of processes.
        skip_bad: leave out images that cannot be decoded, and list them in `skipped.txt`.
        reporter: shows progress and warnings.

    Raises:
        UsageError: `folder` contains other files.
        RunError: images cannot be decoded (with `skip_bad`: all images of a split, or of a class
            in train), or the disk has too little free space.
        Interrupted: the user pressed Ctrl-C; the same call resumes the packing.
    """
    dataset_json.check_format(options.format, source.kind)
    encoding = _encoding(source, options)
    if source.ignored:
        first, *others = source.ignored[: listing.SHOWN]
        then = f", then {', '.join(others)}" if others else ""
        more = len(source.ignored) - listing.SHOWN
        reporter.warn(
            f"{source.root}: {len(source.ignored):,} files that are not images are left out;"
            f" the first is {first}{then}{f' and {more:,} more' if more > 0 else ''}"
        )
    with (
        files.resumable(f"packing {folder}"),
        files.writing(f"write into {folder}", folder, hint="run the same command again to resume"),
    ):
        with unfinished.notes(folder, _plan(source, options)) as state:
            jobs = _jobs(source, folder, options, encoding, skip_bad)
            finished = _kept(jobs, state, workers, reporter)
            _make(jobs, state, finished, workers, reporter)
            _refuse_empty(jobs, finished)
            _refuse_untaught(source, jobs, finished)
            if re_encoded := sum(done.encoded for done in finished.values()):
                reporter.note(f"  {re_encoded:,} images were re-encoded, because they have an EXIF"
                              " orientation or some apps could not decode them")
            dataset = _describe(source, options, encoding, jobs, finished)
            complete(folder, dataset, [bad for job in jobs for bad in finished[job.stem].bad])
        shutil.rmtree(state)
    return dataset


def _encoding(source: Listing, options: Options) -> str:
    if options.resize is not None:
        return "jpg"
    kinds = source.encodings
    if "dcm" in kinds:
        raise UsageError(f"{source.root} contains DICOM files, which must be packed as JPEG",
                         code="images-mixed", hint="add --resize, for example 1024 or 250x250")
    if len(kinds) > 1:
        raise UsageError(
            f"{source.root} contains both JPEG and PNG files, but a packed data set has one format",
            code="images-mixed", hint="add --resize, which converts all images to JPEG",
        )
    return kinds.pop()


def _plan(source: Listing, options: Options) -> dict[str, Any]:
    """Return all values that determine the content of the shards, as JSON data.

    An unfinished packing is resumed only by a call with the same plan.
    """
    plan = {"source": source.fingerprint, "encoder": pictures.ENCODER, **asdict(options)}
    return plan | ({"decoder": videos.decoder()} if source.has_videos else {})


def _jobs(
    source: Listing, folder: Path, options: Options, encoding: str, skip_bad: bool
) -> list[Job]:
    jobs = []
    for split, samples in source.splits.items():
        order = shuffled(split, len(samples))
        size = options.shard_samples(len(order), source.kind)
        for number, start in enumerate(range(0, len(order), size)):
            chosen = [(at, samples[at]) for at in order[start : start + size]]
            jobs.append(Job(source.root, folder, f"{split}-{number:05d}", options, encoding,
                            skip_bad, chosen, source.kind))
    return jobs


def _kept(jobs: list[Job], state: Path, workers: int, reporter: Reporter) -> dict[str, Done]:
    """Return the unchanged shards that an earlier, interrupted packing finished, by name."""
    noted = [(job.folder, state / f"{job.stem}.json") for job in jobs]
    tasks = [task for task in noted if task[1].is_file()]
    kept: dict[str, Done] = {}
    if tasks:
        with reporter.bar("verifying existing shards", len(tasks), unit="shards") as advance:
            found = pool.run(still_there, tasks, workers, advance)
            kept = {done.stem: done for done in found if done is not None}
        reporter.note(f"  {len(kept)} of {len(jobs)} shards exist already")
    # Without --skip-bad, a shard that leaves out images must be packed again.
    return {job.stem: kept[job.stem] for job in jobs
            if job.stem in kept and (job.skip_bad or not kept[job.stem].bad)}


def still_there(task: tuple[Path, Path], advance: Advance) -> Done | None:
    """Return the record of a finished shard; None if a file of the shard is missing or has changed.

    Args:
        task: the folder of the shard, and the JSON file (note) that contains the record.
        advance: called once, after the note is read.
    """
    folder, note = task
    content = parse_json(note.read_text(encoding="utf-8"))
    done = Done.model_validate({"stem": note.stem, **content})
    advance(1)
    if (shard := done.shard) is not None:
        listed = {shard.file: shard.sha256, shard.index: shard.index_sha256}
        for path, digest in ((folder / name, listed[name]) for name in listed if name):
            if not path.is_file() or files.sha256(path) != digest:
                return None
    return done


def _make(
    jobs: list[Job], state: Path, finished: dict[str, Done], workers: int, reporter: Reporter
) -> None:
    """Write the shards that are not in `finished`, and add them to `finished`."""
    todo = [job for job in jobs if job.stem not in finished]
    total = sum(len(job.chosen) for job in jobs)
    left = sum(len(job.chosen) for job in todo)
    videos_too = any(one.clip for job in todo for _, one in job.chosen)
    # The size of scaled images and of decoded videos is not known before they are packed.
    if todo and todo[0].options.resize is None and not videos_too:
        size = sum(sample.size for job in todo for _, sample in job.chosen)
        files.check_space(state, size + files.SPARE_BYTES, f"packing into {state.parent}", RunError)
    bad: list[Bad] = []
    with reporter.bar(
        f"packing {todo[0].options.name}" if todo else "packing", total, unit="images",
        done=total - left,
    ) as advance:
        for done in pool.run(make, todo, workers, advance):
            finished[done.stem] = done
            bad += [] if jobs[0].skip_bad else done.bad
    if bad:
        lines = [f"{jobs[0].root / name} {reason}" for name, reason in sorted(bad)]
        raise RunError(
            "\n".join(lines), code="image-undecodable",
            hint="repair or remove these files and pack again into a new folder, or repeat the"
            " command with --skip-bad to leave them out",
        )


def make(job: Job, advance: Advance) -> Done:
    """Write one shard, and a note that the shard is finished.

    If an image cannot be decoded, the shard and the note are written only with `skip_bad`, and the
    shard does not contain this image.
    """
    state = job.folder / unfinished.STATE
    part, note = state / f"{job.stem}.part", state / f"{job.stem}.json"
    note.unlink(missing_ok=True)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    bad: list[Bad] = []
    re_encoded: list[str] = []
    shard = formats.write_shard(
        job.options.format, part, job.stem, job.kind, _records(job, bad, re_encoded, advance)
    )
    done = Done(
        stem=job.stem, shard=shard if shard.samples else None, bad=bad, encoded=len(re_encoded)
    )
    if job.skip_bad or not bad:
        if done.shard:
            _move(part, job.folder)
        files.write_atomic(note, json.dumps(done.model_dump(exclude={"stem"})) + "\n")
    shutil.rmtree(part)
    return done


def _records(
    job: Job, bad: list[Bad], re_encoded: list[str], advance: Advance
) -> Iterator[Record]:
    """Yield the records of the shard that `job` describes.

    Images that cannot be decoded are added to `bad`. The names of re-encoded images are added to
    `re_encoded`.
    """
    for key, sample in job.chosen:
        try:
            frames = _frames(job, sample, re_encoded)
            yield Record(key, sample.name, sample.labels, frames, job.encoding)
        except pictures.BadImage as error:
            bad.append((sample.name, str(error)))
        advance(1)


def _frames(job: Job, sample: listing.Sample, re_encoded: list[str]) -> tuple[bytes, ...]:
    resize, quality = job.options.resize, job.options.quality
    if sample.clip:
        return sequences.video_frames(job.root / sample.file, sample.clip, resize, quality)
    stored = listing.read(job.root, sample)
    if resize is not None:
        return sequences.each(stored, lambda content: pictures.scaled(content, resize, quality))
    found = sequences.each(stored, pictures.checked)
    re_encoded += [sample.name for one, other in zip(stored, found, strict=True) if one != other]
    return found


def _move(part: Path, folder: Path) -> None:
    """Move the files in `part` into `folder`; they replace files of an earlier attempt."""
    for path in part.iterdir():
        target = folder / path.name
        if target.is_dir():  # an LMDB shard; a rename cannot replace a folder with files
            shutil.rmtree(target)
        path.replace(target)


def _refuse_empty(jobs: list[Job], finished: dict[str, Done]) -> None:
    """Raise RunError if no image of a split can be decoded: an empty split cannot be read."""
    splits: dict[str, list[Done]] = {}
    for job in jobs:
        splits.setdefault(job.split, []).append(finished[job.stem])
    for split, shards in splits.items():
        if not any(done.shard for done in shards):
            name, reason = min(bad for done in shards for bad in done.bad)
            raise RunError(
                f"{jobs[0].root}: no image of the split {split} can be decoded;"
                f" the first, {name}, {reason}", code="split-empty",
                hint="repair or remove these files and pack again into a new folder",
            )


def _refuse_untaught(source: Listing, jobs: list[Job], finished: dict[str, Done]) -> None:
    """Raise RunError if a class in the split `train` has no image that can be decoded."""
    bad = {name for job in jobs if job.split == "train" for name, _ in finished[job.stem].bad}
    train = source.splits["train"] if bad else []
    left = {label for one in train if one.name not in bad for label in one.labels}
    for sample in train:
        for label in sample.labels:
            if label not in left:
                raise RunError(
                    f"{source.root}: no image of the class {source.classes[label]!r} in train can"
                    f" be decoded; the first is {sample.name}", code="class-empty",
                    hint="repair or remove these files and pack again into a new folder",
                )


def _describe(
    source: Listing, options: Options, encoding: str, jobs: list[Job], finished: dict[str, Done]
) -> Dataset:
    splits: dict[str, list[Shard]] = {split: [] for split in source.splits}
    for job in jobs:
        shard = finished[job.stem].shard
        if shard is not None:
            splits[job.split].append(shard)
    resize = options.resize
    width, height = (None, None) if resize is None or isinstance(resize, int) else resize
    encodes = resize is not None or source.has_videos
    re_encoded = any(done.encoded for done in finished.values())
    return Dataset(
        name=options.name, format=options.format, classes=source.classes,
        labels=source.kind.labels, sample=source.kind.sample,
        image=ImageFacts(
            channels=3, height=height, width=width, encoding="png" if encoding == "png" else "jpg",
            mean=MEAN, std=STD,
        ),
        splits={split: PackedSplit.of(shards) for split, shards in splits.items()},
        origin=Origin(
            contents=source.contents, order_seed=ORDER_SEED, encoder=pictures.ENCODER,
            decoder=videos.decoder() if source.has_videos else None, resize=resize,
            quality=options.quality if encodes else pictures.QUALITY if re_encoded else None,
            skipped=sum(len(done.bad) for done in finished.values()),
        ),
    )


def complete(folder: Path, dataset: Dataset, bad: list[Bad]) -> None:
    """Write the list of the samples that were left out, if there are any, and `dataset.json`."""
    if bad:
        lines = "".join(f"{name}\t{reason}\n" for name, reason in sorted(bad))
        files.write_atomic(folder / SKIPPED, lines)
    dataset_json.write(folder, dataset)
