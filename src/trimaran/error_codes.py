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
    # images
    "lock-missing": "A lock file of an image does not exist.",
    "lock-invalid": "A lock file has a line that does not pin a package.",
    "lock-inherited": "An app image has all its packages from its framework image; it has no lock.",
    "lock-outdated": "A lock has other versions than those that would be locked now.",
    "file-outdated": "A generated file differs from what its generator writes now.",
    "python-unsupported": "No wheels are locked for the version of Python.",
    "wheel-missing": "No package index offers a wheel with a locked hash.",
    "wheel-build-failed": "Building a package of this repository did not give one wheel.",
    "offline-missing": "The cache lacks a file, and --offline forbids the download.",
    "base-invalid": "The file given as base image is not an image archive.",
    "base-unpinned": "An image definition has no digest of its base image, and none was given.",
    "base-unavailable": "The base image is not in the cache and cannot be pulled or assembled.",
    "apt-unexpected": "The answer of apt lacks a release file or names an unknown archive.",
    "evidence-invalid": "A file of published evidence does not follow its schema.",
    # provenance
    "image-invalid": "A file is not an image of the expected format.",
    "image-damaged": "An image differs from the one that was built or pulled.",
    "base-different": "An image was built on another base image than the one to compare with.",
    "key-missing": "The keyring has no private key, or none with the given number.",
    "key-ambiguous": "The keyring has several private keys, and none was chosen.",
    "passphrase-wrong": "The passphrase of a private key is wrong.",
    "signature-exists": "The key has signed the image already.",
    "signature-missing": "The image has no signature.",
    "signature-invalid": "A signature of the image does not match its content.",
    "signer-unknown": "The image is signed by a key that is not in the keyring.",
    "signer-refused": "The image is signed, but by none of the accepted keys.",
    "registry-missing": "No registry is given, configured or recorded.",
    "registry-unreachable": "The registry does not answer.",
    "registry-failed": "The registry answers with an error or with an invalid answer.",
    "login-invalid": "A file of registry logins or a credential helper gives no usable login.",
    "login-refused": "The registry requires a login, or refuses the given one.",
    "certificate-untrusted": "The certificate of a server is not trusted.",
    "tls-missing": "The server does not use TLS.",
    "manifest-invalid": "The registry has no manifest of one image under the digest or tag.",
    "digest-mismatch": "An image or manifest has another digest than expected.",
    "image-unpublished": "The registry has no image under the digest or tag.",
    "image-other-engine": "The registry has the image in a format of another engine.",
    "audit-failed": "The vulnerability service gave no answer about the packages.",
    # recipes
    "recipe-misplaced": "The path of a recipe does not agree with its app, target or purpose.",
    "point-unknown": "The series has no such point, the recipe is no series, or no point is given.",
    # launch
    "app-missing": "The image contains no app to launch.",
    "control-characters": "A text with control characters cannot be part of a script.",
    # verdict
    "run-incomplete": "The run has not completed, so there is no verdict.",
    "run-inconsistent": "The files of a run disagree.",
    "metrics-missing": "A run has no metrics.jsonl.",
    "metrics-invalid": "A line of metrics.jsonl is not an event.",
    # report
    "run-unpublishable": "The run cannot be published as evidence.",
    "rate-missing": "The app card names no rate, or the run has not reported it.",
}
"""Code -> one sentence: what went wrong."""
