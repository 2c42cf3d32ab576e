"""The worker: takes tasks of queues and does them."""

import logging
import os
import socket
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from .client import Client, pause
from .errors import Permanent, Problem, RetryAfter

_log = logging.getLogger("procaas")


class TakenTask:
    """A task that a worker does."""

    def __init__(self, message: Dict[str, Any], lease: float) -> None:
        self.id: str = message["id"]
        self.type: str = message["type"]
        self.payload: Any = message.get("payload")
        self.key: str = message.get("key", "")
        #: The number of this attempt, from 1.
        self.attempt: int = message["attempt"]
        #: Is set when the handler must stop: at the timeout of the task, when another worker has it, or when the worker stops.
        self.cancelled = threading.Event()
        self._receipt: str = message["receipt"]
        self._until = time.monotonic() + lease
        self._lost = False
        self._timeout: Optional[float] = message.get("timeout")


#: Does a task, and returns its result, which a run with queue.task gets, or None.
Handler = Callable[[TakenTask], Any]


class Worker:
    """Takes tasks and does them, each in a thread. Any number of workers, in any language, share the queues.

    The policy of the queue retries an error of a handler, unless it is Permanent or RetryAfter.
    """

    def __init__(
        self,
        client: Client,
        handlers: Mapping[str, Handler],
        name: Optional[str] = None,
        concurrency: int = 1,
        lease: float = 30,
        poll: float = 5,
        grace: float = 10,
    ) -> None:
        """Makes a worker with a handler for each type of tasks. Times are in seconds.

        name identifies the worker for people. At most concurrency tasks run at once, up to 1,000. lease is after how long without a
        heartbeat others may take the tasks. Heartbeats are sent three times as often. poll is how long one request waits for tasks, at
        most 20 s. grace is how long a worker that stops lets its tasks run before it cancels them.
        """
        self._client = client
        self._handlers = dict(handlers)
        self._name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._concurrency = concurrency
        self._lease, self._poll, self._grace = lease, poll, grace
        self._stopping = threading.Event()
        self._changed = threading.Condition()  # guards _held
        self._held: Dict[str, TakenTask] = {}

    def stop(self) -> None:
        """Lets run() return. A handler of signals may call it."""
        self._stopping.set()

    def run(self) -> None:
        """Does tasks until stop() is called.

        Then it takes no more, waits for those in progress, and returns unfinished ones to the queue without counting the attempt. It
        raises a Problem if the server refuses the worker.
        """
        ended = threading.Event()
        beats = threading.Thread(target=self._beat, args=(ended,), daemon=True)
        beats.start()
        try:
            while not self._stopping.is_set():
                self._take()
        finally:
            self._stopping.set()
            self._drain()
            ended.set()
            beats.join()

    def _drain(self) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: not self._held, self._grace):
                for task in self._held.values():
                    task.cancelled.set()
            self._changed.wait_for(lambda: not self._held)

    def _take(self) -> None:
        """Takes tasks when one may begin."""
        with self._changed:
            # A signal sets no condition, so the wait is short.
            self._changed.wait_for(lambda: len(self._held) < self._concurrency, 0.5)
            free = self._concurrency - len(self._held)
        if free <= 0:
            return
        for message in self._claim(free):
            if self._stopping.is_set():
                self._tell("snooze", {"tasks": [{"receipt": message["receipt"]}]})
                continue
            task = TakenTask(message, self._lease)
            with self._changed:
                self._held[task._receipt] = task
            threading.Thread(target=self._do, args=(task,), daemon=True).start()

    def _claim(self, limit: int) -> List[Dict[str, Any]]:
        types = [{"type": t, "limit": limit} for t in self._handlers]
        body = {"worker": self._name, "types": types, "limit": limit, "lease": self._lease, "wait": self._poll}
        try:
            return self._client.call("POST", "/v1/queues/claim", body, wait=self._poll)[1]["items"]
        except Exception as error:
            if isinstance(error, Problem) and not error.temporary:
                raise
            _log.warning("no tasks can be taken: %s", error)
            pause(4, error)
            return []

    def _do(self, task: TakenTask) -> None:
        """Does a task, and reports its outcome."""
        late = threading.Timer(task._timeout, task.cancelled.set) if task._timeout else None
        if late:
            late.daemon = True
            late.start()
        failure: Optional[Exception] = None
        result: Any = None
        try:
            result = self._handlers[task.type](task)
        except Exception as error:  # the policy of the queue decides about any error
            failure = error
        if late:
            late.cancel()
        self._report(task, result, failure)
        with self._changed:
            del self._held[task._receipt]
            self._changed.notify_all()

    def _report(self, task: TakenTask, result: Any, failure: Optional[Exception]) -> None:
        """Tells the server the outcome of a task, unless another worker has it."""
        if task._lost:
            return
        if failure is None:
            self._tell("complete", {"results": [{"receipt": task._receipt, "result": result}]})
            return
        if self._stopping.is_set() and task.cancelled.is_set():
            self._tell("snooze", {"tasks": [{"receipt": task._receipt}]})
            return
        _log.warning("a task failed: type %s, task %s, attempt %d: %s", task.type, task.id, task.attempt, failure)
        report: Dict[str, Any] = {"receipt": task._receipt, "error": f"{type(failure).__name__}: {failure}"}
        if isinstance(failure, Permanent):
            report["final"] = True
        if isinstance(failure, RetryAfter):
            report["delay"] = failure.delay
        self._tell("fail", {"tasks": [report]})

    def _beat(self, ended: threading.Event) -> None:
        """Extends the leases of all tasks that this worker has, and cancels those that it has lost."""
        while not ended.wait(self._lease / 3):
            with self._changed:
                held = list(self._held.values())
            if not held:
                continue
            now = time.monotonic()
            lost = self._tell("heartbeat", {"receipts": [t._receipt for t in held], "lease": self._lease})
            for task in held:
                if task._receipt in (lost or []) or lost is None and time.monotonic() > task._until:
                    task._lost = True
                    task.cancelled.set()
                elif lost is not None:
                    task._until = now + self._lease

    def _tell(self, verb: str, body: Any) -> Optional[List[str]]:
        """Reports outcomes, and returns the lost receipts. If nobody answers, others take the tasks after the lease."""
        try:
            return self._client.call("POST", "/v1/queues/" + verb, body)[1]["lost"]
        except Exception as error:
            _log.warning("the server does not learn of tasks: %s: %s", verb, error)
            return None
