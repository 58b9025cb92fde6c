"""The image reference: identifies an image that is planned, built, pulled or published."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ImageReference:
    """An image of one engine.

    Attributes:
        name: name of the image definition (`resnet-imagenet-torch-cpu`).
        engine: name of the engine that holds it.
        reference: SIF path, OCI image reference or virtual environment folder.
        digest: `sha256:...` of the SIF file or of the OCI manifest; None on the host, and for
            an image that is not built yet.
        inputs: SHA-256 over all inputs of its build (definition, locks, sources, base image).
    """

    name: str
    engine: str
    reference: str
    digest: str | None
    inputs: str
