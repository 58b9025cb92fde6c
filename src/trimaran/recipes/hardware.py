"""Published hardware facts of a target: peak rates, memory, power and links, for predictions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trimaran import strict
from trimaran.recipes import assumed
from trimaran.recipes.assumed import Assumed, Unchecked

Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"]

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Device(strict.Model):
    """A computing device: an accelerator, or a processor socket if there are no accelerators."""

    name: str
    count: Annotated[int, Field(ge=1)] = Field(description="devices in a node")
    teraflops: dict[Precision, Positive] = Field(
        min_length=1, description="peak rate in TFLOP/s of dense operations, by precision; an"
        " accelerator's peak is that of its matrix units if it has some",
    )
    memory_gb: Positive | None = Field(
        default=None, description="memory in GB (10^9 bytes); null: not published"
    )
    bandwidth: Positive = Field(description="peak memory bandwidth in GB/s")
    watts: Positive | None = Field(default=None, description="maximum power in W")


class Link(strict.Model):
    """A connection between two devices or two nodes."""

    name: str = Field(description="kind, such as NVLink 2, PCIe 3.0 x16, 100 Gbit/s Omni-Path")
    bandwidth: Positive = Field(description="peak in GB/s, in each direction, of each device or"
                                " node")
    latency: Positive | None = Field(
        default=None, description="time of a short message in microseconds; null: not published"
    )


class Storage(strict.Model):
    """A file system with the read rates that the computing centre or the manufacturer publishes."""

    name: str = Field(description="kind, such as Lustre, or NVMe disks of a node")
    node: Positive | None = Field(
        default=None, description="GB/s that one node reads at most; null: not published"
    )
    whole: Positive | None = Field(
        default=None, description="GB/s that all nodes together read at most; null: not published"
    )

    @model_validator(mode="after")
    def _states_a_rate(self) -> Storage:
        if self.node is None and self.whole is None:
            raise ValueError("give 'node' or 'whole', or leave 'storage' out")
        return self


class Hardware(strict.Model):
    """The devices of a node and their links.

    Each number is a peak value, which a manufacturer or the publication of a run states.

    `assumed` maps the key path of each number without a source to the reason for its value.
    `unchecked` maps the key path of each number that the author of the file did not compare with
    its source to the place where the number should be looked up.
    """

    device: Device
    within: Link | None = Field(
        default=None, description="link between the devices of a node; null: a single device"
    )
    between: Link | None = Field(
        default=None, description="link of a node to the others; null: not published"
    )
    storage: Storage | None = Field(
        default=None, description="file system with the training data; null: not published"
    )
    sources: list[str] = Field(min_length=1, description="publications of these numbers")
    assumed: Assumed
    unchecked: Unchecked

    @model_validator(mode="after")
    def _marked_exist(self) -> Hardware:
        content = self.model_dump(exclude={"assumed", "unchecked"})
        assumed.check(self.assumed, content)
        assumed.check(self.unchecked, content, key="unchecked")
        return self
