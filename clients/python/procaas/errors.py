"""Errors of calls, and errors that a handler of tasks may raise."""

import json
from typing import Any, Dict, List, Union


class Problem(Exception):
    """An error that the server returned. Its code is stable: compare it, not the text."""

    def __init__(self, status: int, details: Dict[str, Any], retry_after: float = 0) -> None:
        self.status = status
        self.code: str = details.get("code", "")
        self.title: str = details.get("title", "")
        self.detail: str = details.get("detail", "")
        self.errors: List[Dict[str, Any]] = details.get("errors", [])
        #: How many seconds the server asks to wait; 0 if it does not say.
        self.retry_after = retry_after
        super().__init__(f"{self.title} ({self.code}): {self.detail}" if self.code else self.title)

    @property
    def temporary(self) -> bool:
        """Whether the same call may succeed later."""
        return self.status in (429, 502, 503, 504)


class Unreachable(ConnectionError):
    """The server did not answer, or the connection broke. It may have taken the call: the cause says what happened last."""

    def __init__(self, server: str, cause: BaseException) -> None:
        super().__init__(f"{server} does not answer: {getattr(cause, 'reason', None) or cause or type(cause).__name__}")


class Permanent(Exception):
    """An error of a task that no retry can mend. The task becomes a dead letter."""


class RetryAfter(Exception):
    """An error of a task, with the seconds before the next attempt."""

    def __init__(self, delay: float, message: str) -> None:
        super().__init__(message)
        self.delay = delay


def problem_of(status: int, reason: str, body: bytes, retry_after: Union[str, None]) -> Problem:
    """Reads a refusal. One that is not from procaas, such as a proxy's, has an empty code."""
    try:
        details = json.loads(body)
    except ValueError:
        details = None
    if not isinstance(details, dict) or "code" not in details:
        details = {"title": f"{status} {reason}"}
    return Problem(status, details, float(retry_after) if retry_after and retry_after.isdigit() else 0)
