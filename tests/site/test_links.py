"""Check that every link, picture, script and anchor of every page has an existing target."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from trimaran import paths


class Links(HTMLParser):
    """A parser that collects the links of a page, and the anchors in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.names: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if value is None:
                continue
            if key in ("href", "src", "srcset"):
                self.links.add(value)
            elif key == "id" or (key == "name" and tag == "a"):
                self.names.add(value)


def faults(site: Path) -> list[str]:
    """Return every link without an existing target, with its page."""
    pages = {path: Links(path.read_text()) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data"):
                continue
            start = site if parts.path.startswith("/") else path.parent
            target = (start / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                found.append(f"{path.relative_to(site)}: {link}")
            elif target in pages and not parts.fragment.startswith("__") and (
                unquote(parts.fragment) not in pages[target].names
            ):
                found.append(f"{path.relative_to(site)}: {link}: no such anchor")
    return found


def test_no_link_is_broken(built: Path) -> None:
    assert faults(built) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<a href="other/">a</a><a href="none/">b</a><img src="c.png"><a href="other/#no">d</a>'
        '<source srcset="d.svg">')
    (tmp_path / "other").mkdir()
    (tmp_path / "other/index.html").write_text('<h1 id="yes">x</h1><a href="../#">e</a>')
    assert sorted(faults(tmp_path)) == [
        "index.html: c.png", "index.html: d.svg", "index.html: none/",
        "index.html: other/#no: no such anchor"]


def test_nothing_is_fetched_from_elsewhere(built: Path) -> None:
    """Pages may link to other sites, but load no script, style or picture from them."""
    for path in built.rglob("*.html"):
        text = path.read_text()
        for word in ('src="http', "@import", 'rel="stylesheet" href="http', "fonts.g"):
            assert word not in text, path


def test_every_recipe_image_and_app_has_its_page(built: Path) -> None:
    from trimaran.images import definition
    from trimaran.recipes import cards, library

    wanted = [f"recipes/{name}" for name in library.names()]
    wanted += [f"images/{name}" for name in definition.names()]
    wanted += [f"apps/{name}" for name in cards.names()]
    assert [name for name in wanted if not (built / name / "index.html").is_file()] == []


def test_no_folder_of_a_machine_is_on_a_page(built: Path) -> None:
    here = str(paths.repository())
    assert [path for path in built.rglob("*.html") if here in path.read_text()] == []
