"""What the pages have in common: files beside this one, Jinja2 templates, and a content security policy by digest."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Template


@functools.cache
def asset(name: str) -> str:
    """The text of a file of this package."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


@functools.cache
def template(name: str) -> Template:
    """A template of this package, which escapes what it is given."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(asset(name))


def policy(*, style: str, script: str = "") -> str:
    """A content security policy that allows this style sheet and this script, inline, and forbids every request."""
    scripts = f"script-src '{_source(script)}'; " if script else ""
    return f"default-src 'none'; {scripts}style-src '{_source(style)}'; base-uri 'none'; form-action 'none'"


def _source(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
