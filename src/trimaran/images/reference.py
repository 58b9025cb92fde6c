"""References to images: the fields that each model of a built, run or published image has.

`ImageReference` and its bases are dataclasses. A model of a file inherits from one of them and from
pydantic's `BaseModel`, so that it declares only the fields that it adds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineImage:
    """An image, identified by the name of its definition and by its engine.

    Attributes:
        name: name of the image definition (`resnet-imagenet-torch-cpu`).
        engine: name of the engine that holds the image.
    """

    name: str
    engine: str


@dataclass(frozen=True)
class ImageReference(EngineImage):
    """An image on one machine.

    Attributes:
        reference: SIF path, OCI image reference or virtual environment folder.
        digest: `sha256:...` of the SIF file or of the OCI manifest; None on the host, and for
            an image that is not built yet.
        inputs: SHA-256 over everything that went into the image (definition, locks, sources, base).
    """

    reference: str
    digest: str | None
    inputs: str

    @property
    def image(self) -> ImageReference:
        """The reference alone, without the fields that a subclass adds."""
        return ImageReference(self.name, self.engine, self.reference, self.digest, self.inputs)
