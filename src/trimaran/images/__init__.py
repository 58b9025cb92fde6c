"""What an image is: its definition, rendered for Apptainer and Docker from one source.

Locks, wheelhouses and base images belong to it. Nothing here builds or runs an image."""
