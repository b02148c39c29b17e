"""Finds the server, and what the settings name, before anything is sent."""

from __future__ import annotations

from draftmark.bench.adapters import make_adapter
from draftmark.bench.calibrate import read_calibration
from draftmark.bench.declared.files import read_declared
from draftmark.bench.gates import check_waivers
from draftmark.bench.log_scan import check_allowed, open_log
from draftmark.bench.screen import Screen
from draftmark.bench.session.session import Session
from draftmark.bench.session.settings import Settings
from draftmark.bench.tokenizer import find_tokenizer


def open_session(settings: Settings, screen: Screen) -> Session:
    """Raises `Unavailable`, `ModelNotFound` for a model that the server does not have, and
    `ConfigError`."""
    check_waivers(settings.waive)
    check_allowed(settings.allow)
    declared, log, calibration = settings.declared, settings.log, settings.calibration
    adapter = make_adapter(
        settings.adapter,
        settings.url,
        model=settings.model,
        api_key=settings.api_key,
        pid=settings.pid,
    )
    return Session(
        settings,
        screen,
        adapter=adapter,
        tokenizer=find_tokenizer(
            settings.tokenizer,
            control=adapter.control,
            model=adapter.model,
            is_served=adapter.accepts.tokenize,
        ),
        declared=None if declared is None else read_declared(declared, service=settings.service),
        log=None if log is None else open_log(log),
        calibration=None if calibration is None else read_calibration(calibration),
    )
