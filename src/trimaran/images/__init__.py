"""Image definitions, their rendering for Apptainer and Docker, locks, wheelhouses, base images.

Nothing in this package builds or runs an image."""
