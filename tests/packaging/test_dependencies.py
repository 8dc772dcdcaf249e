"""What the packages import and what pyproject.toml declares are the same."""

import ast
import functools
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
distributions = functools.cache(packages_distributions)
"""It reads the list of files of every distribution: only where it is asked."""

ONLY_TO_DERIVE_THE_SCHEMA = {"envoy-data-plane", "grpcio-health-checking"}
"""Imported by `python -m ext_proc.schema`, which is run in a checkout."""


def canonical(name):
    return name.replace("_", "-").lower()


def named(requirements):
    return {canonical(re.match(r"[\w.-]+", text).group()) for text in requirements}


CORE = named(PROJECT["project"]["dependencies"])
OPTIONAL = set().union(*map(named, PROJECT["project"]["optional-dependencies"].values()))


def imported(package):
    """The foreign top-level modules that a package imports, at the top of a module or inside a function."""
    found = set()
    for path in (CHECKOUT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add(node.module)
    return {name.split(".")[0] for name in found} - sys.stdlib_module_names - set(PACKAGES)


def providers(module):
    """The installed distributions that a module can come from: several, for a namespace such as `google`."""
    return {canonical(name) for name in distributions().get(module, [])}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_import_is_declared(package):
    declared = CORE | OPTIONAL | ONLY_TO_DERIVE_THE_SCHEMA
    assert not {module for module in imported(package) if not providers(module) & declared}


def test_every_core_dependency_is_imported():
    used = set().union(*(providers(module) for package in PACKAGES for module in imported(package)))
    assert not CORE - used
