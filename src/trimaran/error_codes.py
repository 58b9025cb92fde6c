"""The codes of all expected errors, each with its meaning.

The words of a message may change at any time, but its code stays. Scripts and tests use the code.
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
    # Ground modules
    "file-not-plain": "A path is a link, a directory or a special file, not a plain file.",
    "name-invalid": "A name contains characters that are not allowed.",
    "home-unknown": "The home directory is unknown, so that there is no place for the cache.",
    "definitions-missing": "A directory contains no recipes, or lacks the layout of a checkout.",
    "definition-ambiguous": "Two definitions have the same name.",
    "definition-installed": "A definition was installed with Trimaran and cannot be changed.",
    "program-timeout": "A program did not end within its time limit.",
    "worker-killed": "The operating system killed a worker process.",
    "proxy-invalid": "An environment variable contains an invalid proxy address.",
    "certificates-invalid": "A file contains no certificate in PEM format.",
    # net
    "download-failed": "No source provided the file.",
    "download-offline": "A file is missing, and the offline mode forbids to download it.",
    # data
    "checksum-mismatch": "The content of a file does not match its published checksum.",
    "licence-required": "The user has to accept a licence and download the files in person.",
    "data-missing": "There is no packed data set at the given place.",
    "data-damaged": "A file, shard or record of a data set is damaged or incomplete.",
    "data-mismatch": "The data set is not the one that the recipe or its contract requires.",
    "data-outdated": "An earlier version of Trimaran packed the data set; it lacks checksums.",
    "format-unsuitable": "The packed format cannot hold samples of this kind.",
    "layout-invalid": "A directory does not have the layout that the reader requires.",
    "split-missing": "The data set has no split to train on.",
    "split-empty": "A split contains no samples.",
    "class-unknown": "A class is not among the known classes.",
    "class-empty": "A class has no images to train on.",
    "class-ambiguous": "The name of a class may be several names, or a variant of another name.",
    "patient-shared": "Images of one patient are in two splits.",
    "table-invalid": "A CSV table has a faulty row or column.",
    "images-missing": "Images that a table lists do not exist.",
    "images-misplaced": "Images are at places from which they are not read.",
    "images-mixed": "The images need --resize, because of their file formats.",
    "image-undecodable": "An image or a video cannot be decoded.",
    "source-changed": "A source file changed after it was listed.",
    "packing-conflict": "The directory contains an unfinished packing of other files or options.",
}
"""Code -> one sentence that describes the error."""
