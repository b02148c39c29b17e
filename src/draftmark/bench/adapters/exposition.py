"""A server's `/metrics` as figures that can be asked for by name and label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from draftmark.core.errors import Unavailable


class Series(msgspec.Struct, frozen=True):
    name: str
    labels: Mapping[str, str]
    value: float

    @property
    def title(self) -> str:
        """`name{label="value"}`, labels in order."""
        inside = ",".join(f'{key}="{value}"' for key, value in sorted(self.labels.items()))
        return f"{self.name}{{{inside}}}" if inside else self.name


class Exposition:
    """One scrape. A figure that the server does not have is None.

    `counters` are names of totals that it announces. One without any series is 0: nothing of it
    has happened yet.
    """

    def __init__(self, series: Iterable[Series], *, counters: Iterable[str] = ()) -> None:
        self._announced = frozenset(counters)
        self._by_name: dict[str, list[Series]] = {}
        for one in series:
            self._by_name.setdefault(one.name, []).append(one)

    def series(self, name: str) -> list[Series]:
        return self._by_name.get(name, [])

    def total(self, *names: str, **labels: str) -> float | None:
        """The sum of the first of `names` that is there, over engines and other labels.

        A label that a series lacks does not exclude it: `tp_rank="0"` takes one of several ranks
        that count the same, and all of a server that has no ranks.
        """
        for name in names:
            if found := self._matching(name, labels):
                return sum(one.value for one in found)
            if name in self._announced:
                return 0.0
        return None

    def count(self, *names: str, **labels: str) -> int | None:
        value = self.total(*names, **labels)
        return None if value is None else round(value)

    def by_position(self, name: str) -> list[int] | None:
        """Counts by their label `position`, from 0, engines added up; None where there are none."""
        found = self.series(name)
        if not found:
            return None
        last = max(int(one.labels["position"]) for one in found)
        return [self.count(name, position=str(place)) or 0 for place in range(last + 1)]

    def largest(self, *names: str) -> float | None:
        """Of the engines, for shares, which do not add up."""
        for name in names:
            if found := self.series(name):
                return max(one.value for one in found)
        return None

    def labels_of(self, name: str) -> dict[str, str]:
        """Of the first series, for figures that say something in their labels only."""
        found = self.series(name)
        return dict(found[0].labels) if found else {}

    def counters(self) -> dict[str, float]:
        """Every total by its title, histograms left out."""
        return {
            one.title: one.value
            for name, found in self._by_name.items()
            if name.endswith("_total")
            for one in found
        }

    def _matching(self, name: str, labels: Mapping[str, str]) -> list[Series]:
        return [
            one
            for one in self.series(name)
            if all(one.labels.get(key, value) == value for key, value in labels.items())
        ]


def parse_exposition(text: str) -> Exposition:
    """Raises `Unavailable` for what is no Prometheus text."""
    try:
        families = list(text_string_to_metric_families(text))
    except ValueError as error:
        raise Unavailable(f"/metrics gave no Prometheus text: {error}") from error
    return Exposition(
        (
            Series(sample.name, sample.labels, sample.value)
            for family in families
            for sample in family.samples
        ),
        counters=(f"{family.name}_total" for family in families if family.type == "counter"),
    )
