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
}
"""Code -> one sentence: what went wrong."""
