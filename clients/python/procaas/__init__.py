"""Submits events to a procaas server, waits for their runs, and does the tasks of its queues."""

from .client import Client
from .errors import Permanent, Problem, RetryAfter, Unreachable
from .messages import Event, Receipt, ReceiptItem, Result, Run, RunHandler, Task, TaskReceipt
from .worker import TakenTask, Worker

__all__ = [
    "Client", "Event", "Permanent", "Problem", "Receipt", "ReceiptItem", "Result", "RetryAfter", "Run", "RunHandler",
    "TakenTask", "Task", "TaskReceipt", "Unreachable", "Worker",
]
