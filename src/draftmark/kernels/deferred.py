"""Functions of backends whose module is imported when one is first called: numba takes a second to
import and may be absent."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import Any


class Deferred:
    """The function `name` of `module`."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.function(*args, **options)

    @cached_property
    def function(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(import_module(self.module), self.name)
        return function
