"""The frame of every page: styles for light and dark, no script, nothing fetched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from draftmark.bench.report.plot import Chart


def page(title: str, body: str) -> str:
    style = Path(__file__).with_name("style.css").read_text()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )


def figures(charts: Iterable[tuple[Chart, str]]) -> str:
    """Charts, each with a line below."""
    drawn = "".join(
        f"<figure><h3>{escape(chart.title)}</h3>{chart.svg()}"
        f"<figcaption>{escape(said)}</figcaption></figure>"
        for chart, said in charts
    )
    return f'<section class="charts">{drawn}</section>'


def section(title: str, inside: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{inside}</section>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> str:
    """Cells are HTML already; `numbers` sets all but the first column to the right."""
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    top = f"<thead><tr>{titles}</tr></thead>" if any(head) else ""
    kind = ' class="numbers"' if numbers else ""
    return f'<div class="scroll"><table{kind}>{top}<tbody>{lines}</tbody></table></div>'


def named(name: str, means: str) -> str:
    """A name that says what it means when pointed at."""
    return f'<span title="{escape(means)}">{escape(name)}</span>'
