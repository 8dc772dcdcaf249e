"""The house: no circle of imports, no private name that leaves its module, and class names that mean one thing."""

from __future__ import annotations

import ast
import graphlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    *("conformance", "ext_proc", "fake_epp", "fake_kubernetes", "fake_modelserver", "fake_proxy", "real_envoy"),
    *("reference_epp", "reference_gateway"),
)

NAMESPACES = {
    "reference_epp": "it shares nothing with the harness, its words included, and is never imported by it",
    "fake_modelserver": "it imports nothing of the suite, and stands for a program with its own words",
}
"""Packages whose class names may also be used elsewhere, and why."""


def sources() -> Iterator[tuple[str, Path, ast.Module]]:
    """Package, path and syntax tree of every module of the distribution."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield package, path, ast.parse(path.read_text(encoding="utf-8"))


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside of functions and for type checking included."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    imports = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"circle of imports: {' → '.join(reversed(error.args[1]))}", pytrace=False)


def test_no_module_imports_a_private_name_of_another() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {name.name}"
        for package, path, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES
        for name in node.names
        if name.name.startswith("_") and not name.name.startswith("__")
    ]
    assert found == []


def test_a_public_class_name_is_defined_once() -> None:
    places = defaultdict(list)
    for package, path, tree in sources():
        if package not in NAMESPACES:
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
