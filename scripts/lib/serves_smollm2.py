"""Exit status 0 when `draftmark serve` with these arguments serves the built-in smollm2.

Anything that serve itself would refuse is left for it to explain: the status is then 1.
"""

from __future__ import annotations

import sys

from draftmark.cli.arguments import ALL_SECTIONS, CommandParser, add_config_flags, declared_from
from draftmark.core.errors import DraftmarkError

BUILT_IN = ("smollm2", "smollm2-135m")


def serves_smollm2(arguments: list[str]) -> bool:
    """Read the arguments as serve does: the model may stand in a --config file too."""
    if {"-h", "--help"} & set(arguments):
        return False
    parser = CommandParser("serve", about="")
    add_config_flags(parser, sections=ALL_SECTIONS)
    try:
        declared = declared_from(parser.parse(arguments))
    except DraftmarkError:  # serve reports it in full a moment later
        return False
    return declared.config.model.model in BUILT_IN


if __name__ == "__main__":
    sys.exit(0 if serves_smollm2(sys.argv[1:]) else 1)
