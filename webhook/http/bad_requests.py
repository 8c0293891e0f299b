"""Logs the requests that the HTTP library rejects."""

from __future__ import annotations

import logging

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

from webhook.logs import set_fields


def log_bad_http_as_info() -> None:
    """Log a request that is not HTTP as one line without a traceback.

    Any client can send one at any rate. The HTTP library logs it as an error with a traceback.
    """
    logging.getLogger("aiohttp.server").addFilter(demote_bad_http)


def demote_bad_http(record: logging.LogRecord) -> bool:
    problem = record.exc_info[1] if record.exc_info else None
    if isinstance(problem, (HttpProcessingError, RequestPayloadError)):
        # The text quotes the request, over several lines.
        set_fields(record, problem=" ".join(str(problem).split())[:200])
        record.levelno, record.levelname = logging.INFO, "INFO"
        record.exc_info = record.exc_text = None
    return True
