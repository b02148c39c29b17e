"""`python -m draftmark.bench.schemas`: writes the schemas beside this file."""

from draftmark.bench.schemas import write_schemas

write_schemas()
