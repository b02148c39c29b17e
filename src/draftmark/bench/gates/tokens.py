"""Gates on what was sent and what came back, in tokens: a run of other prompts than planned, of
shorter answers, or of prompts that a cache knew, measured something else."""

from __future__ import annotations

from collections import Counter

from draftmark.bench.gates.evidence import Check, Evidence, Found
from draftmark.bench.profile import Mode, PromptSource
from draftmark.bench.request import CountSource, Failure
from draftmark.bench.result import GateKind, Role


def corpus_fresh(evidence: Evidence) -> Found | None:
    """A trace repeats what was repeated when it was recorded."""
    if evidence.profile.mode is Mode.TRACE:
        return None
    repeated = _repeated(evidence)
    limit = "no prompt twice"
    if repeated:
        return Found(holds=False, observed=f"{repeated} prompts sent before", limit=limit)
    # A warm run burns no fresh text: what it sent is gone before anything is counted.
    if evidence.profile.source is not PromptSource.LEDGER or evidence.role is Role.WARM:
        return Found(holds=True, observed=f"{len(evidence.records)} different prompts", limit=limit)
    limit = f"a {' or '.join(sorted(evidence.corpus_classes))} window, and no prompt twice"
    if evidence.ledger is None:
        return Found(holds=None, observed="no line of the ledger", limit=limit)
    first, end = evidence.ledger.window
    seen = f"{evidence.ledger.klass} window [{first}, {end}) of {evidence.ledger.corpus}"
    holds = evidence.ledger.klass in evidence.corpus_classes
    return Found(holds=holds, observed=seen, limit=limit)


def _repeated(evidence: Evidence) -> int:
    prompts = Counter(record.prompt_sha for record in evidence.records)
    return prompts.total() - len(prompts)


def cache_hit_zero(evidence: Evidence) -> Found | None:
    """By the usage of the requests and by the server's counter; the larger counts. The prompts of a
    trace share what it says they share."""
    if evidence.profile.mode is Mode.TRACE:
        return None
    allowed = evidence.shared_tokens * len(evidence.succeeded)
    limit = f"at most {allowed} tokens ({evidence.shared_tokens} that all prompts share)"
    told = {
        "usage": evidence.measured.tokens.cached,
        "counter": evidence.delta.cached_tokens,
    }
    known = {source: count for source, count in told.items() if count is not None}
    if not known:
        return Found(holds=None, observed="the server does not tell", limit=limit)
    observed = ", ".join(f"{count} by {source}" for source, count in known.items())
    return Found(
        holds=max(known.values()) <= allowed, observed=f"cached tokens: {observed}", limit=limit
    )


def prompt_len_exact(evidence: Evidence) -> Found | None:
    planned = [r for r in evidence.succeeded if r.n_in_plan is not None]
    if not planned:
        return None
    told = [
        r.n_in_usage - r.n_in_plan
        for r in planned
        if r.n_in_usage is not None and r.n_in_plan is not None
    ]
    limit = "as planned, each"
    if len(told) < len(planned):
        silent = len(planned) - len(told)
        return Found(holds=None, observed=f"{silent} answers without usage", limit=limit)
    wrong = [difference for difference in told if difference]
    observed = f"{len(wrong)} of {len(told)} prompts otherwise"
    if wrong:
        observed += f", by {min(wrong):+d} to {max(wrong):+d} tokens"
    return Found(holds=not wrong, observed=observed, limit=limit)


def out_len_exact(evidence: Evidence) -> Found | None:
    """The answers of a trace have a length each: there only short ones are looked for."""
    if not evidence.profile.ignore_eos:
        return None
    osl = evidence.profile.osl
    is_trace = evidence.profile.mode is Mode.TRACE
    limit = "each as long as asked" if is_trace else f"{osl} tokens each"
    short = evidence.measured.counts.by_class.get(Failure.SHORT_OUTPUT, 0)
    uncounted = sum(r.n_out is None or r.n_out_source is CountSource.CHUNKS
                    for r in evidence.succeeded)  # fmt: skip
    if uncounted:
        return Found(holds=None, observed=f"{uncounted} answers without a count", limit=limit)
    other = 0 if is_trace else sum(record.n_out != osl for record in evidence.succeeded)
    return Found(
        holds=not short and not other,
        observed=f"{short} short, {other} of another length",
        limit=limit,
    )


def token_source_same(evidence: Evidence) -> Found | None:
    if not evidence.succeeded:
        return None
    sources = evidence.measured.tokens.sources
    observed = ", ".join(f"{count} by {source}" for source, count in sources.items()) or "none"
    return Found(
        holds=evidence.measured.tokens.source is not None, observed=observed, limit="one source"
    )


CHECKS: tuple[Check[Evidence], ...] = (
    Check(
        id="corpus_fresh",
        kind=GateKind.METHOD,
        demands="No prompt was sent twice, and one from a ledger is of a fresh window (or a "
        "paired one, by plan); not asked of traces.",
        look=corpus_fresh,
        where="requests.jsonl.gz: prompt_sha; run.json: ledger",
        advice="Reserve a fresh window of the ledger, or send random ids under a new run id.",
    ),
    Check(
        id="cache_hit_zero",
        kind=GateKind.METHOD,
        demands="No more prompt tokens came from a cache than all prompts share, by usage and "
        "by the server's counter; not asked of traces.",
        look=cache_hit_zero,
        where="requests.jsonl.gz: n_cached; run.json: server.delta.cached_tokens",
        advice="Send prompts the server has not seen, or empty its prefix cache before the run.",
    ),
    Check(
        id="prompt_len_exact",
        kind=GateKind.METHOD,
        demands="The server counted exactly the prompt tokens that were planned.",
        look=prompt_len_exact,
        where="requests.jsonl.gz: n_in_plan, n_in_usage",
        advice="Send token ids, or the tokenizer of the model that is served.",
    ),
    Check(
        id="out_len_exact",
        kind=GateKind.METHOD,
        demands="With ignore_eos, every answer is as long as was asked.",
        look=out_len_exact,
        where="requests.jsonl.gz: n_out, n_out_source",
        advice="See that the server honours ignore_eos and max_tokens, and has room for both.",
    ),
    Check(
        id="token_source_same",
        kind=GateKind.METHOD,
        demands="The tokens of all answers were counted in one way.",
        look=token_source_same,
        where="run.json: tokens.sources",
        advice="Ask for usage with every stream; a server that leaves it out of some is at fault.",
    ),
)
