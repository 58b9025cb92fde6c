"""The codes of all expected errors of the apps, each with its meaning.

The words of a message may change at any time, but its code does not. Scripts and tests use codes.
An error of the same kind as an error of `trimaran` has the same code.
"""

from __future__ import annotations

CODES = {
    # Options
    "argument-invalid": "An option is unknown, or has a value that is not allowed.",
    "argument-missing": "An option that the command needs is missing.",
    "arguments-conflict": "Options exclude or contradict each other.",
    # Files and the machine
    "file-exists": "The output exists already; nothing is overwritten.",
    "file-missing": "A file that an option names does not exist.",
    "file-not-plain": "A path is a link, a directory or a special file, not a plain file.",
    "file-unreadable": "A file or directory exists and cannot be read.",
    "file-unwritable": "A file or directory cannot be written.",
    "permission-denied": "The user has no permission to write to a directory.",
    "disk-full": "The file system or the quota has too little free space.",
    "library-missing": "A Python package that an option or the data need is not installed.",
    "program-missing": "A program that an option needs, such as a compiler, is not installed.",
    "gpu-unavailable": "A rank finds no GPU that it could use.",
    # The run directory and its checkpoints
    "run-not-empty": "The run directory contains a run already; a run is never overwritten.",
    "run-changed": "The run was begun with other settings than those to resume it with.",
    "run-damaged": "The metrics of the run do not reach as far as its checkpoint.",
    "in-use": "Another process trains in the run directory.",
    "metrics-missing": "A run has no metrics.jsonl, or no measurements in it yet.",
    "metrics-invalid": "A line of metrics.jsonl is not an event.",
    "checkpoint-missing": "A checkpoint to resume from or to use does not exist.",
    "checkpoint-damaged": "A checkpoint is incomplete or damaged.",
    "checkpoint-outdated": "An earlier version of the app wrote the checkpoint, in another format.",
    "checkpoint-mismatch": "A checkpoint belongs to another app, network or training.",
    "weights-damaged": "A file of first weights is damaged, or has another format.",
    "weights-mismatch": "A file of first weights belongs to another network.",
    "checksum-mismatch": "The content of a file does not match its published checksum.",
    "export-differs": "The exported network computes something else than the original.",
    # Data
    "data-missing": "The data set or file does not exist, or contains no samples.",
    "data-invalid": "The description of a data set does not follow its schema.",
    "data-damaged": "Packed data differ from their index, sizes or checksums.",
    "data-mismatch": "The data have other classes or channels than those of the checkpoint.",
    "data-unsuitable": "The app or the option does not read data of this kind.",
    "data-too-small": "The data set has fewer samples than the training has ranks.",
    "format-unsuitable": "The packed format cannot hold samples of this kind.",
    "split-missing": "The data set has no split of the given name.",
    "split-empty": "A split contains no samples.",
    "class-unknown": "A class is not among the known classes.",
    "record-invalid": "A record has a wrong number of images or classes, or unknown classes.",
    "image-undecodable": "An image or a video cannot be decoded.",
    "image-unsuitable": "An image is too large, or differs in size from those before it.",
    "sequence-too-short": "A sequence or video has fewer frames than a clip.",
    "prompt-invalid": "A prompt is not UTF-8, or a line of a file of prompts has no text.",
    "staging-stalled": "The process that copies the shards of a node makes no progress.",
    # Ranks
    "launcher-invalid": "Variables that connect the ranks are missing or invalid.",
    "ranks-unconnected": "The ranks are not connected, and would train independently.",
    "ranks-uneven": "The work cannot be divided evenly among the ranks.",
    "layout-impossible": "The network or the batch cannot be divided over the ranks as requested.",
    "ranks-differ": "The ranks have different weights or sums.",
    "ranks-too-few": "The command needs several ranks, and was started as one.",
    "rank-lost": "Another rank ended, hangs or cannot be reached.",
    # The measurement of communication
    "operation-missing": "The library or its backend does not have the operation.",
    "precision-unsupported": "A device has no instructions for the precision.",
    "memory-insufficient": "The buffers or weights do not fit into the memory of a node or device.",
    "result-wrong": "An operation between the ranks gave a wrong result.",
    # The training
    "loss-not-finite": "The loss is NaN or infinite.",
    "state-not-finite": "The weights or the measured values are NaN or infinite.",
    "stopped": "A signal or the user stopped the command.",
    # Other apps
    "app-failed": "An error to which an app has given no code.",
}
"""Code -> one sentence that describes the error."""
