"""Draw which packages import which, for the architecture page.

    python -m scripts.package_graph

The folder `arrester/` has links to the packages, so tools that resolve imports by path see none of
them. grimp resolves them by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from itertools import chain, pairwise
from pathlib import Path
from typing import Final

import grimp

FOLDER: Final = Path(__file__).parents[1] / "docs" / "explanation"
#: By picture: the package whose parts it has. Other packages are one box each.
PICTURES: Final = {
    "packages-of-the-agent.svg": "agents",
    "packages-of-the-server.svg": "controlplane",
    "packages-of-the-dashboard.svg": "dashboard",
}
_ROOT: Final = "arrester"
#: Others than these are not drawn: they start the product.
_PACKAGES: Final = ("agents", "cli", "controlplane", "dashboard", "domain")
_BOX, _GAP, _ROW, _CHARACTER = 26, 18, 66, 7.3
#: How often the places in the layers are sorted, from the top and from the bottom.
_SWEEPS: Final = 8

Graph = Mapping[str, set[str]]


def drawn() -> dict[str, str]:
    """Return the pictures by the names of their files."""
    graph = grimp.build_graph(_ROOT)
    modules = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    return {file: _picture(_packages(modules, package)) for file, package in PICTURES.items()}


def _packages(modules: Mapping[str, Iterable[str]], opened: str) -> Graph:
    """Return which packages import which: the parts of `opened`, and what it uses."""
    found: dict[str, set[str]] = defaultdict(set)
    for importer, imported in modules.items():
        source = _part_of(importer, opened)
        if source is None or not source.startswith(f"{opened}/"):
            continue
        targets = {_part_of(name, opened) for name in imported} - {None, source, opened}
        found[source] |= {target for target in targets if target is not None}
    return found


def _part_of(module: str, opened: str) -> str | None:
    """Return the box of a module; None: it is not drawn."""
    names = module.split(".")[1:]
    if not names or names[0] not in _PACKAGES:
        return None
    if names[0] != opened or len(names) == 1:
        return names[0]
    return f"{opened}/{names[1]}"


def direct(graph: Graph) -> dict[str, set[str]]:
    """Return the imports that do not follow from others: those that the picture has."""
    order = list(TopologicalSorter(graph).static_order())
    below: dict[str, set[str]] = {}
    for name in order:
        imported = graph.get(name, set())
        below[name] = imported.union(*(below[each] for each in imported))
    return {
        name: {
            each
            for each in graph.get(name, set())
            if not any(each in below[other] for other in graph.get(name, set()))
        }
        for name in order
    }


def _routed(edges: Mapping[str, set[str]]) -> tuple[list[list[str]], dict[str, set[str]]]:
    """Return the layers from top to bottom, and the lines between neighbouring ones.

    A box is above all that it imports. A line that passes a layer has a place of its own there,
    whose name begins with a space.
    """
    height: dict[str, int] = {}
    for name in TopologicalSorter(edges).static_order():
        height[name] = 1 + max((height[each] for each in edges[name]), default=-1)
    top = max(height.values())
    layers: list[list[str]] = [[] for _ in range(top + 1)]
    for name in sorted(height):
        layers[top - height[name]].append(name)
    lines: dict[str, set[str]] = defaultdict(set)
    for name in sorted(edges):
        for each in sorted(edges[name]):
            last = name
            for level in range(top - height[name] + 1, top - height[each]):
                passed = f" {name} {each} {level}"
                layers[level].append(passed)
                lines[last].add(passed)
                last = passed
            lines[last].add(each)
    for _ in range(_SWEEPS):
        _sort(layers, _reversed(lines))
        _sort(layers[::-1], lines)
    _sort(layers, _reversed(lines))
    return layers, lines


def _reversed(lines: Mapping[str, set[str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for name, others in lines.items():
        for each in others:
            found[each].add(name)
    return found


def _sort(layers: list[list[str]], neighbours: Mapping[str, set[str]]) -> None:
    """Sort each layer by the places of the neighbours in the layer before."""
    for before, layer in pairwise(layers):
        place = {name: (index + 0.5) / len(before) for index, name in enumerate(before)}

        def key(name: str, place: Mapping[str, float] = place) -> tuple[float, str]:
            places = [place[each] for each in neighbours.get(name, ())]
            return (sum(places) / len(places) if places else 0.5, name)

        layer.sort(key=key)


def _picture(graph: Graph) -> str:
    layers, lines = _routed(direct(graph))
    boxes = {name: round(_CHARACTER * len(_label(name)) + 16) for name in chain(*layers)}
    width_of = {name: 4 if name.startswith(" ") else width for name, width in boxes.items()}
    widths = [sum(width_of[name] + _GAP for name in layer) - _GAP for layer in layers]
    width, height = max(widths) + 2 * _GAP, len(layers) * _ROW - (_ROW - _BOX) + 2 * _GAP
    places: dict[str, tuple[float, float]] = {}
    for level, layer in enumerate(layers):
        left = (width - widths[level]) / 2
        for name in layer:
            places[name] = (left + width_of[name] / 2, _GAP + level * _ROW)
            left += width_of[name] + _GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" height="{height}" font-family="monospace" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            '<g fill="none" stroke="#8a94a3">',
            *(
                _line(places[name], places[each])
                for name in sorted(lines)
                for each in sorted(lines[name])
            ),
            *(_passing(places[name]) for name in sorted(places) if name.startswith(" ")),
            "</g>",
            *(
                _box(name, places[name], width_of[name])
                for name in sorted(places)
                if not name.startswith(" ")
            ),
            "</svg>",
            "",
        ]
    )


def _label(name: str) -> str:
    return name.rpartition("/")[2]


def _line(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = (start[0], start[1] + _BOX), end
    bend = (y2 - y1) / 2
    return (
        f'<path d="M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f}'
        f' {x2:.0f} {y2:.0f}"/>'
    )


def _passing(place: tuple[float, float]) -> str:
    x, y = place
    return f'<path d="M{x:.0f} {y:.0f}V{y + _BOX:.0f}"/>'


def _box(name: str, place: tuple[float, float], width: int) -> str:
    left, top = place[0] - width / 2, place[1]
    fill = "#e8eefb" if "/" in name else "#f1ece0"
    return (
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{width}" height="{_BOX}" rx="4"'
        f' fill="{fill}" stroke="#5c6b82"/>'
        f'<text x="{place[0]:.0f}" y="{top + 17:.0f}" text-anchor="middle" fill="#1c2430">'
        f"{_label(name)}</text>"
    )


def main() -> None:
    for file, text in drawn().items():
        (FOLDER / file).write_text(text)


if __name__ == "__main__":
    main()
