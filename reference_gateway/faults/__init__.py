"""Every fault of the gateway, and the variants that must not be accused. Importing this package declares them all."""

import importlib
import pkgutil

from reference_gateway.fault import FAULTS, VARIANTS

__all__ = ["FAULTS", "VARIANTS"]

for _module in sorted(one.name for one in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")
