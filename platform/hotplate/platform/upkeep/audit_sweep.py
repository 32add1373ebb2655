"""Removes lines of the audit when they are older than they are to be kept, and not before."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta

from hotplate.platform.errors import StoreFailed
from hotplate.platform.store.audit import Audit

log = logging.getLogger("hotplate.sweeper")

PERIOD_S = 3600.0


async def forget_old(audit: Audit, kept_days: float) -> None:
    """Looks every hour, until cancelled."""
    while True:
        try:
            before = datetime.now(UTC) - timedelta(days=kept_days)
            if gone := await audit.run(audit.forget, before):
                log.info("%d lines of the audit are older than %g days", gone, kept_days)
        except StoreFailed as error:
            log.warning("old lines of the audit stay until the next attempt: %s", error)
        await asyncio.sleep(PERIOD_S)
