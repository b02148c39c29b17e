"""No fault may hide: no `nan_to_num`, no bare, swallowed or needlessly broad exception.

A handler that does nothing with what it caught is allowed only when it is narrow and a comment in
it says why nothing is the right thing to do. A handler of everything (`except Exception`) belongs
to a process edge: a comment says why, and it raises, logs or passes the exception on.
`contextlib.suppress` is a swallowed exception and follows the first rule.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

import pytest

from tests.shape.source import Source, python_sources

BROAD = {"Exception", "BaseException"}
SOURCES = python_sources("src", "scripts", "benchmarks")


def comment_lines(source: Source) -> set[int]:
    """Line numbers that carry a comment with words of its own (a tool's pragma is no reason)."""
    tokens = tokenize.generate_tokens(io.StringIO(source.text).readline)
    comments = (token for token in tokens if token.type == tokenize.COMMENT)
    return {
        token.start[0]
        for token in comments
        if not token.string.lstrip("# ").startswith(("noqa", "type:", "pragma", "fmt:"))
    }


def hidden_nans(source: Source) -> list[str]:
    """Uses of `nan_to_num`, by attribute, name, import or string."""
    name = "nan_to_num"
    faults = []
    for node in ast.walk(source.tree):
        words = {
            ast.Name: lambda n: [n.id],
            ast.Attribute: lambda n: [n.attr],
            ast.Constant: lambda n: [n.value],
            ast.ImportFrom: lambda n: [alias.name for alias in n.names],
        }.get(type(node), lambda n: [])(node)
        if any(word in (name, f"{name}_") for word in words if isinstance(word, str)):
            faults.append(f"{source.name}:{node.lineno}: {name} hides a fault")
    return faults


def caught(handler: ast.ExceptHandler) -> set[str]:
    """Names of the exception classes that a handler names."""
    if handler.type is None:
        return set()
    parts = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {part.attr if isinstance(part, ast.Attribute) else ast.unparse(part) for part in parts}


def does_nothing(body: list[ast.stmt]) -> bool:
    """True when no statement does more than leave: pass, ..., continue, break, return constant."""

    def is_constant(value: ast.expr | None) -> bool:
        if isinstance(value, ast.Tuple | ast.List | ast.Set):
            return all(is_constant(element) for element in value.elts)
        if isinstance(value, ast.Dict):
            return not value.keys
        if isinstance(value, ast.UnaryOp):
            return is_constant(value.operand)
        return value is None or isinstance(value, ast.Constant)

    for node in body:
        leaves = isinstance(node, ast.Pass | ast.Continue | ast.Break)
        returns = isinstance(node, ast.Return) and is_constant(node.value)
        says = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not (leaves or returns or says):
            return False
    return True


def passes_on(handler: ast.ExceptHandler) -> bool:
    """True when a handler raises, logs, prints a traceback or uses the exception it bound."""
    loggers = {"exception", "error", "critical", "warning", "print_exc", "format_exc"}
    for node in (node for statement in handler.body for node in ast.walk(statement)):
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Name) and handler.name and node.id == handler.name:
            return True
        if isinstance(node, ast.Attribute) and node.attr in loggers:
            return True
    return False


def handler_faults(source: Source) -> Iterator[str]:
    """Bare, swallowed and careless handlers."""
    reasons = comment_lines(source)
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        where = source.at(node)
        has_reason = bool(reasons & set(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
        if node.type is None:
            yield f"{where}: bare except"
        elif caught(node) & BROAD:
            if not has_reason:
                yield f"{where}: broad except without a reason"
            if not passes_on(node):
                yield f"{where}: broad except that neither raises, logs nor uses what it caught"
        elif does_nothing(node.body) and not has_reason:
            yield f"{where}: swallowed exception without a reason"


def suppress_faults(source: Source) -> Iterator[str]:
    """`contextlib.suppress` without a reason on its line, or of everything."""
    reasons = comment_lines(source)
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        if ast.unparse(node.func) not in ("suppress", "contextlib.suppress"):
            continue
        if {ast.unparse(arg) for arg in node.args} & BROAD:
            yield f"{source.at(node)}: suppress of everything"
        elif not reasons & set(range(node.lineno, (node.end_lineno or node.lineno) + 1)):
            yield f"{source.at(node)}: suppress without a reason on its line"


def faults(source: Source) -> list[str]:
    return [*hidden_nans(source), *handler_faults(source), *suppress_faults(source)]


def test_no_hidden_faults() -> None:
    found = [fault for source in SOURCES for fault in faults(source)]
    assert not found, "\n".join(found)


def indented(handler: str) -> Source:
    lines = "\n".join(f"        {line}" for line in handler.splitlines())
    return Source(
        "specimen", f"def f():\n    for i in x:\n        try:\n            g()\n{lines}\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "y = torch.nan_to_num(x)",
        "x.nan_to_num_(0)",
        "from torch import nan_to_num",
        "f = getattr(torch, 'nan_to_num')",
        "with suppress(OSError):\n    g()",
        "with contextlib.suppress(Exception):  # gone\n    g()",
        "with suppress(OSError):  # noqa: SIM105\n    g()",
    ],
)
def test_a_planted_statement_is_found(text: str) -> None:
    assert len(faults(Source("specimen", text))) == 1


@pytest.mark.parametrize(
    "handler",
    [
        "except:\n    raise",
        "except OSError:\n    pass",
        "except (OSError, ValueError):\n    continue",
        "except OSError:\n    return None",
        "except OSError:\n    return -1, []",
        "except OSError:\n    'a word'",
        "except Exception as error:\n    log.error(error)",
        "except Exception:  # edge of the process\n    count += 1",
        "except BaseException:  # edge of the process\n    return",
        "except (ValueError, Exception) as error:\n    raise X from error",
        "except OSError:  # noqa: S110\n    pass",
    ],
)
def test_a_planted_handler_is_found(handler: str) -> None:
    assert len(faults(indented(handler))) == 1


@pytest.mark.parametrize(
    "handler",
    [
        "except OSError:  # it ended meanwhile\n    pass",
        "except OSError:\n    # it ended meanwhile\n    return False",
        "except OSError as error:\n    raise X from error",
        "except (\n    OSError,\n    ValueError,  # both mean gone\n):\n    continue",
        "except ValueError:\n    return default",
        "except Exception as error:  # process edge: reported to the parent\n    send(error)",
        "except Exception:  # process edge\n    log.exception('failed')\n    sys.exit(1)",
        "except BaseException:  # undo, then on\n    undo()\n    raise",
    ],
)
def test_an_honest_handler_passes(handler: str) -> None:
    assert faults(indented(handler)) == []
