"""options.json says what the parser takes; run as a script, it writes the file anew."""

from pathlib import Path

from toy_tensorflow.__main__ import COMMANDS
from trainkit import options

FILE = Path(__file__).parents[1] / "options.json"


def test_options_json_is_that_of_the_parser() -> None:
    assert FILE.read_text() == options.described(COMMANDS), "run: make generate-apps"


if __name__ == "__main__":
    FILE.write_text(options.described(COMMANDS))
