"""Conforming variants: EPPs that keep the protocol in another way. Importing this package declares them all."""

import importlib
import pkgutil

for _module in sorted(one.name for one in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")
