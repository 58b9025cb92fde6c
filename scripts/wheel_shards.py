"""Include the package `shards` in the wheel of the tool (a build hook of hatchling).

In images and in the apps' environments, `shards` is a separate distribution. It is on no package
index, so the tool cannot depend on it. An editable installation has the folder of `shards` on its
path instead (`dev-mode-dirs`), because a copy would become outdated.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = "apps/shards/src/shards"


class WithShards(BuildHookInterface):  # type: ignore[type-arg]
    """A build hook that adds the package `shards`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the package `shards` to the wheel; hatchling calls this method before it builds one.

        `version` is the kind of wheel: "standard" or "editable". An editable wheel gets no copy.
        """
        if version == "standard":
            build_data["force_include"][SOURCE] = "shards"
