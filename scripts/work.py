"""Write `work.json` of each app whose recipes `trimaran plan` can predict.

    python scripts/work.py

The file has the layers of each network of the app. `python -m MODULE.work` prints it, in the
environment of the app's framework (`scripts/app_tests.py setup`).
"""

from __future__ import annotations

import subprocess
import sys

from trimaran import paths
from trimaran.plan.work import FILE
from trimaran.recipes import cards


def main() -> int:
    """Write `work.json` of each app that `trimaran plan` supports; print the paths of the files."""
    root = paths.repository()
    for app in cards.names():
        card = cards.load(app).card
        if card.planning is not None:
            python = root / f".venv-apps-{card.framework}/bin/python"
            done = subprocess.run(
                [str(python), "-m", f"{card.module}.work"], check=True, stdout=subprocess.PIPE)
            path = root / "apps" / app / FILE
            path.write_bytes(done.stdout)
            sys.stdout.write(f"{path.relative_to(root)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
