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
    # cluster
    "scheduler-missing": "The commands of the batch system are not on PATH of this machine.",
    "scheduler-failed": "A command of the batch system failed, or its answer cannot be read.",
    "scheduler-unsupported": "The batch system does not support a setting or a path.",
    "job-refused": "The batch system refused the job.",
    "job-number-missing": "The batch system may have accepted the job, but printed no job number.",
    "job-active": "A job of the run is still queued or running.",
    "job-not-found": "No job of the run is queued or running.",
    "run-not-submitted": "The run was started on this machine, not by a batch system.",
    "run-completed": "The run has completed: nothing is left to resume.",
    "run-changed": "A file of the run has changed since the run began.",
    "walltime-too-short": "The time limit of the job is shorter than the warning before it.",
    "app-not-elastic": "The app cannot continue after the loss of a node.",
    "form-unsupported": "The recipe cannot be printed in the form that `--form` names.",
    "registry-missing": "The operation needs a registry, and none is configured.",
    "image-without-app": "The image contains no app that could be started.",
    # cli
    "argument-missing": "An argument that the command needs is missing.",
    "confirmation-missing": "The command needs a confirmation, and nobody can be asked.",
    "text-not-utf8": "An argument, a path or a variable is not UTF-8 text.",
    "working-directory-unusable": "The working directory was removed, or permission is denied.",
    "home-unknown": "The environment does not name a home directory.",
    "series-incomplete": "Runs of a scaling series have not completed.",
    "data-unused": "The recipe reads no data set of the given name.",
    "data-damaged": "Packed data differ from their checksums or counts.",
    # compare
    "runs-incomparable": "The runs have different apps, or no metric in common.",
    "run-repeated": "One run is named twice.",
    # evidence
    "evidence-invalid": "A file of evidence does not follow its schema, or is in the wrong place.",
}
"""Code -> one sentence: what went wrong."""
