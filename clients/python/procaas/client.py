"""The client: one method for each call."""

import http.client
import json
import random
import ssl
import time
import urllib.error
import urllib.request
import uuid
from typing import Any, Dict, Iterator, List, Optional, Tuple
from urllib.parse import quote

from .errors import Problem, Unreachable, problem_of
from .messages import Event, Receipt, ReceiptItem, Result, Run, Task, TaskReceipt

_REPLY_WITHIN = 15.0  # seconds, for a call that does not wait
_WAIT_AT_ONCE = 30.0  # seconds, of one request for the end of a run
_SILENT_AT_MOST = 45.0  # seconds. A stream sends a comment every 15 s
_LONGEST_PAUSE = 5.0


class Client:
    """Calls a procaas server. Threads may share it.

    Each call is retried while the server is away or overloaded. An event keeps its id meanwhile, so it starts one run. Errors of the
    server are a Problem. If it does not answer, they are Unreachable. Messages are dictionaries, as the API describes them.
    """

    def __init__(
        self, server: str, token: Optional[str] = None, attempts: int = 5, context: Optional[ssl.SSLContext] = None
    ) -> None:
        """Makes a client of a server, such as http://127.0.0.1:8080.

        attempts is how often a call is tried. context says which certificates are trusted.
        """
        self._base = server.rstrip("/")
        self._token = token
        self._attempts = attempts
        self._context = context

    def submit(self, event: Event) -> Receipt:
        """Submits an event, and returns which run it has started. An event without an id gets one."""
        return self.call("POST", "/v1/events", _named(event))[1]

    def submit_many(self, events: List[Event]) -> List[ReceiptItem]:
        """Submits up to 1,000 events. Returns one outcome for each, in order.

        If the server refuses all, it raises a Problem with the reasons.
        """
        return self.call("POST", "/v1/events", [_named(e) for e in events])[1]["items"]

    def submit_and_wait(self, event: Event, timeout: Optional[float] = None) -> Result:
        """Submits an event, and waits for the end of its run.

        Look at the status of the result: a run may have failed. Raises TimeoutError if the run has not ended after timeout seconds.
        """
        event = _named(event)
        for wait in _waits(timeout):
            _, result = self.call("POST", f"/v1/events?wait={wait:.3f}s", event, wait=wait)
            if "status" in result:
                return result
        raise TimeoutError(f"the run of the event {event['id']} has not ended in {timeout} s")

    def run(self, id: str) -> Run:
        """Reads a run as it is now."""
        return self.call("GET", "/v1/runs/" + quote(id, safe=""))[1]

    def wait(self, id: str, timeout: Optional[float] = None) -> Run:
        """Waits for the end of a run. Raises TimeoutError if it has not ended after timeout seconds."""
        for wait in _waits(timeout):
            status, run = self.call("GET", f"/v1/runs/{quote(id, safe='')}?wait={wait:.3f}s", wait=wait)
            if status == 200:
                return run
        raise TimeoutError(f"the run {id} has not ended in {timeout} s")

    def follow(self, id: str) -> Iterator[Run]:
        """Yields the states of a run: the present one, one after each saved step, and the end.

        It connects again if the connection breaks.
        """
        attempt = 1
        while True:
            try:
                for event, data in self._stream(f"/v1/runs/{quote(id, safe='')}/progress"):
                    attempt = 1
                    yield json.loads(data)
                    if event == "end":
                        return
            except (Problem, OSError, http.client.HTTPException) as error:
                if attempt >= self._attempts or not _passes(error):
                    raise self._typed(error) from error
                pause(attempt, error)
                attempt += 1

    def put_task(self, queue: str, task: Task) -> TaskReceipt:
        """Puts a task into a queue. It is retried only if the task has a unique name: otherwise it could be there twice."""
        path = f"/v1/queues/{quote(queue, safe='')}/tasks"
        return self.call("POST", path, task, once=not task.get("unique"))[1]

    def call(self, method: str, path: str, body: Any = None, wait: float = 0, once: bool = False) -> Tuple[int, Any]:
        """Makes a call of the API until it is answered. Returns the status and the reply.

        wait is how many seconds longer the server may take. once forbids retries.
        """
        attempt = 1
        while True:
            try:
                with self._send(method, path, body, _REPLY_WITHIN + wait) as reply:
                    return reply.status, json.load(reply)
            except (Problem, OSError, http.client.HTTPException) as error:
                if once or attempt >= self._attempts or not _passes(error):
                    raise self._typed(error) from error
                pause(attempt, error)
                attempt += 1

    def _typed(self, error: Exception) -> Exception:
        return error if isinstance(error, Problem) else Unreachable(self._base, error)

    def _send(self, method: str, path: str, body: Any, timeout: float) -> http.client.HTTPResponse:
        headers: Dict[str, str] = {}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["Authorization"] = "Bearer " + self._token
        request = urllib.request.Request(self._base + path, data, headers, method=method)
        try:
            return urllib.request.urlopen(request, timeout=timeout, context=self._context)
        except urllib.error.HTTPError as refusal:
            with refusal:
                raise problem_of(refusal.code, refusal.reason, refusal.read(), refusal.headers["Retry-After"]) from None

    def _stream(self, path: str) -> Iterator[Tuple[str, str]]:
        """Reads one stream of server-sent events. Raises an error when it breaks."""
        with self._send("GET", path, None, _SILENT_AT_MOST) as reply:
            event = ""
            for line in reply:
                field, _, value = line.decode().rstrip("\r\n").partition(": ")
                if field == "event":
                    event = value
                elif field == "data":
                    yield event, value
        raise ConnectionError("the stream ended before the run")


def pause(attempt: int, error: Optional[BaseException] = None) -> None:
    """Sleeps before the next attempt: what the server asks for, or longer each time."""
    seconds = min(0.1 * 2 ** (attempt - 1), _LONGEST_PAUSE)
    if isinstance(error, Problem) and error.retry_after > 0:
        seconds = error.retry_after
    time.sleep(seconds * random.uniform(1, 1.25))


def _passes(error: Exception) -> bool:
    """Whether an error may pass: the server is away or overloaded, or the connection broke."""
    return not isinstance(error, Problem) or error.temporary


def _named(event: Event) -> Event:
    """Sets the id of an event that has none, so that a retry starts no second run."""
    return event if event.get("id") else {**event, "id": str(uuid.uuid4())}


def _waits(timeout: Optional[float]) -> Iterator[float]:
    """Yields how long to wait in each request until the timeout. There is always one request."""
    if timeout is None:
        while True:
            yield _WAIT_AT_ONCE
    end = time.monotonic() + timeout
    left = timeout
    while True:
        yield max(0.001, min(_WAIT_AT_ONCE, left))
        left = end - time.monotonic()
        if left <= 0:
            return
