"""Put the package `shards` into the wheel of the tool, as hatchling builds it.

`shards` is a distribution of its own in images and in the apps' environments. No package index has
it, so that the tool could not ask for it. An editable installation has its folder on the path
instead (`dev-mode-dirs`): a copy would become outdated there.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = "apps/shards/src/shards"


class WithShards(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the package beside `trimaran`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add it to the files of a wheel; `version` is "editable" of another installation."""
        if version == "standard":
            build_data["force_include"][SOURCE] = "shards"
