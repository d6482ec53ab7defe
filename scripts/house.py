"""Write the house in docs/architecture.md: each module under its layer, with its first sentence.

python scripts/house.py           write it
python scripts/house.py --check   exit with 1 where it is stale
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGES = ("schemas", "flightrec", "replay")
START = "<!-- house: made by scripts/house.py from tests/test_layers.py and the modules -->"
END = "<!-- end of house -->"


def layers() -> dict[int, list[str]]:
    """Return the table that the test of layers enforces: layer -> modules and packages."""
    tree = ast.parse((ROOT / "tests" / "test_layers.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS":
            return {layer: names.split() for layer, names in ast.literal_eval(node.value).items()}
    raise ValueError("tests/test_layers.py has no LAYERS")


def modules() -> dict[str, Path]:
    """Return every module of the three packages by dotted name."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "__pycache__" not in path.parts
    }


def purpose(path: Path) -> str:
    """Return the first sentence of a module."""
    words = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return words.partition("\n")[0]


def house() -> str:
    """Return the block between the marks: a heading per layer, a line per module."""
    places = {name: layer for layer, names in layers().items() for name in names}
    rooms: dict[int, list[str]] = {layer: [] for layer in layers()}
    for module, path in modules().items():
        name = module
        while name not in places:
            name = name.rpartition(".")[0]
        place = path.relative_to(ROOT).as_posix()
        rooms[places[name]].append(f"- `{place}`: {purpose(path)}")
    parts = [f"### Layer {layer}\n\n" + "\n".join(lines) for layer, lines in rooms.items() if lines]
    return "\n\n".join([START, *parts, END])


def page() -> str:
    """Return docs/architecture.md as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(START)
    _, _, tail = rest.partition(END)
    return head + house() + tail


def main() -> int:
    """Return 0, or 1 where --check finds the page stale."""
    wanted = page()
    if wanted == PAGE.read_text(encoding="utf-8"):
        return 0
    if "--check" in sys.argv[1:]:
        print("docs/architecture.md is stale: run scripts/house.py")
        return 1
    PAGE.write_text(wanted, encoding="utf-8")
    print("docs/architecture.md written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
