"""Write an app's `options.json`: `python -m trainkit.testing.describe FOLDER`."""

import sys
from pathlib import Path

from trainkit.testing.program import described

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "options.json").write_text(described(folder))
