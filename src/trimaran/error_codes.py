"""The codes of all expected failures, each with its meaning.

A message may be reworded at any time; its code stays. Scripts and tests rely on the code.
"""

from __future__ import annotations

CODES = {
    # Names, arguments and files that a user gives
    "argument-invalid": "An argument of the command line has a value that is not allowed.",
    "arguments-conflict": "Arguments exclude each other, or the recipe excludes an argument.",
    "name-unknown": "No recipe, image, app, data set or other thing has the given name.",
    "file-invalid": "The content of a YAML, JSON or table file does not follow its schema.",
    "file-missing": "A file or directory that is needed does not exist.",
    "file-exists": "The output exists already; nothing is overwritten.",
    "file-unreadable": "A file or directory exists and cannot be read.",
    "file-unwritable": "A file or directory cannot be written.",
    "file-too-large": "A file is larger than the limit for files of its kind.",
    "app-missing": "The image has no app to launch.",
    "mount-unsupported": "The engine cannot show a path in a container.",
    "recipe-unsupported": "The recipe needs what the command or engine cannot do.",
    "registry-missing": "No registry is configured.",
    # The system
    "disk-full": "The file system or the quota has too little free space.",
    "permission-denied": "The user has no permission for a file, directory or operation.",
    "system-refused": "The operating system refused an operation for another reason.",
    "memory-full": "The memory is used up.",
    "in-use": "Another process uses the resource.",
    "program-missing": "A program that the operation needs is not installed.",
    "program-failed": "A program that was started ended with an error.",
    "stopped": "The user stopped the command.",
    "fault": "An unexpected failure: a fault of Trimaran itself.",
    # engines
    "engine-unsuitable": "The engine does not support the operation.",
    "image-missing": "The image is not built and not pulled on this machine.",
    "image-damaged": "An image differs from the one that was built or pulled.",
    "image-invalid": "A file is not an image of the expected format.",
    "digest-mismatch": "An image or manifest has another digest than expected.",
    "build-failed": "A build ended without the image that it should have made.",
    "base-invalid": "The base image cannot be used by this engine.",
    "environment-damaged": "The files of a virtual environment differ from their recorded hashes.",
    "wheel-damaged": "A Python wheel cannot be unpacked.",
    "install-failed": "pip could not install the packages beside the image.",
    "gpu-unavailable": "The engine cannot give a container the GPUs of this machine.",
    # run
    "run-not-empty": "The run directory contains files already; a run is never overwritten.",
    "run-missing": "The directory is not a run directory: it has no run.json.",
    "run-damaged": "A record in a run directory is damaged or missing.",
    "run-completed": "The run has completed: nothing is left to resume.",
    "run-changed": "Something that a run uses has changed since the run began.",
    "run-not-resumable": "The app of the run cannot resume from a checkpoint.",
    "path-outside": "A path in a run directory leads out of it, or is not a plain file.",
    "batch-system-required": "The recipe needs several nodes: it runs as a job, not directly.",
    "data-unnamed": "The recipe reads several data sets, and a path does not say for which.",
    "data-unused": "The recipe reads no data set of the given name.",
    "data-damaged": "Packed data differ from their checksums or counts.",
    "initial-missing": "The run starts from a checkpoint, and none is given.",
    "initial-invalid": "The given checkpoint is not the file that the recipe starts from.",
    "app-refused-arguments": "The app refused its arguments.",
    "app-data-invalid": "The app refused its data.",
    "app-diverged": "The training diverged.",
    "app-rank-lost": "A rank of the training was lost.",
    "app-ranks-differ": "The ranks of the training have different weights.",
    "app-stopped": "The training stopped early and can be resumed.",
    "app-killed": "A signal ended the app.",
    "app-failed": "The app ended with another error.",
    # bundles
    "bundle-invalid": "The file is not a bundle, or a bundle of another version of Trimaran.",
    "bundle-damaged": "A bundle is incomplete, or a file in it differs from its checksum.",
    "bundle-unsafe": "A bundle contains a file that its list of checksums does not allow.",
    "bundle-unsupported": "The run cannot be put into a bundle.",
    "file-changed": "A file changed while it was read.",
}
"""Code -> one sentence: what went wrong."""
