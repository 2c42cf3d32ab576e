# Generated from schemas/openapi.json by TestMessagesOfClients.
"""The messages of the API."""

from typing import Any, Dict, List, Optional, TypedDict, Union


class Event(TypedDict, total=False):
    """An Event starts a run."""

    # When the event is due. The default is now.
    at: str
    # How long the event may wait beyond that without harm: text such as 90s, or seconds.
    delay_tolerance: Union[str, float]
    # Unique within source: the same id again is a duplicate. The default is an id that the engine makes.
    id: str
    # The entity, for flows without a key expression. Other flows compute the key, and the reply has it if it differs.
    key: str
    # What to find the run by: up to 8 names of up to 40 letters, digits and ._/- with values of up to 100 bytes.
    labels: Dict[str, str]
    # What happened: any JSON value. Whole numbers of 64 bits stay exact.
    payload: Any
    # Higher goes first among events that are due.
    priority: int
    # The sender.
    source: str
    # The type, which chooses the pipeline.
    type: str


class RunEvent(TypedDict, total=False):
    """A RunEvent is the event of a run."""

    id: str
    key: str
    # Which message of a subscription, or delivery of a webhook, the event was, for people. Absent for others, and in lists.
    origin: str
    payload: Any
    source: str
    time: str
    type: str


class Fault(TypedDict, total=False):
    """A Fault is an error with its location."""

    # In a refused array of events: the reason for the event at this location.
    code: str
    # The location: a JSON pointer into the body, or query/NAME, path/NAME or header/NAME.
    location: str
    # What is wrong, for people.
    message: str


class RunHandler(TypedDict, total=False):
    """A RunHandler is the outcome of a handler in a run."""

    attempts: int
    # When a waiting handler continues; absent if unknown.
    due: str
    error: str
    finished: Optional[str]
    items: "RunItems"
    outcome: str
    # pipeline/stage/handler.
    path: str
    # The reason why the handler was skipped, or what it waits for.
    reason: str
    started: Optional[str]
    within: str


class ItemError(TypedDict, total=False):
    """An ItemError is the error of one element."""

    error: str
    item: int


class RunItems(TypedDict, total=False):
    """A RunItems counts the elements of a loop."""

    errors: List["ItemError"]
    failed: int
    running: int
    succeeded: int
    total: int
    waiting: int


class NotUndone(TypedDict, total=False):
    """A NotUndone is a compensation that has failed."""

    # Why its compensation failed.
    error: str
    # The path of the handler, after those of the calls around it.
    handler: str


class ProblemDetails(TypedDict, total=False):
    """A ProblemDetails is the body of an error."""

    # The kind of problem, for programs. Codes are stable.
    code: str
    # The found and expected values and the remedy, for people.
    detail: str
    # The errors with their locations, if known.
    errors: List["Fault"]
    # The HTTP status.
    status: int
    # The kind of problem, for people.
    title: str
    # A name of the kind of problem, made from the code.
    type: str


class QueuedTask(TypedDict, total=False):
    """A QueuedTask is a task as a worker gets it."""

    # The number of this attempt, from 1. For a dead letter, that of the last one.
    attempt: int
    # The end of its tolerance.
    deadline: str
    # When it is due.
    due: str
    # When it was completed, cancelled or failed for good; absent before.
    ended: str
    # The error of the last failed attempt.
    error: str
    # Its 64-bit number, as text, because not every JSON parser keeps such numbers exact.
    id: str
    # The entity that it is about; absent for none.
    key: str
    # The content. Completed tasks no longer have it. A list omits payloads over 16 KiB: read the task by its id.
    payload: Any
    # Higher goes first among due tasks. The default is 0.
    priority: int
    # The receipt of this attempt, which the worker passes in later calls.
    receipt: str
    # scheduled: it is not due yet. ready: workers can take it. waiting: its key is at its limit. starting: a worker holds it and has not started. running: a worker works on it. failed: it is a dead letter.
    state: str
    # The longest time of one attempt in seconds; absent if the worker decides.
    timeout: float
    # The kind of work: the id of a pipeline with a queue section, or any other name.
    type: str
    # Its name among the unfinished tasks of its type; absent for none.
    unique: str
    # The time by which its worker must report.
    until: str
    # The name of the worker that took it, for people.
    worker: str


class Receipt(TypedDict, total=False):
    """A Receipt says which run an event has started."""

    # true if the event was accepted before. run is the earlier run.
    duplicate: bool
    # The event's id.
    event: str
    # The key of the run. It is only present if the event names another key than the flow computes.
    key: str
    # The id of its run.
    run: str
    # true if it is not known yet whether the state of the key will allow the event. This happens in a flow with states and otherwise: reject, if earlier events of the key are due or the event is due later. If the state then does not allow it, the run ends as ignored. If absent, the state allows the event.
    undecided: bool


class ReceiptItem(TypedDict, total=False):
    """A ReceiptItem is the outcome of one event of several."""

    # true if the event was accepted before; absent if it is refused.
    duplicate: bool
    # The reason why the event is refused; absent if it is accepted.
    error: "ProblemDetails"
    # The event's id.
    event: str
    # The key of the run. It is only present if the event names another key than the flow computes.
    key: str
    # The id of its run; absent if the event is refused.
    run: str
    # As in a single receipt.
    undecided: bool


class Result(TypedDict, total=False):
    """A Result says how the run of an event has ended."""

    # true if the event was accepted before. run is the earlier run.
    duplicate: bool
    # Why the run has failed, for people.
    error: str
    # The class of the error: timeout, connection, a status such as 503, schema, other.
    error_class: str
    # The event's id.
    event: str
    # Of a run that has failed: the path of the handler, or of the pipeline.
    failed_handler: str
    # The key of the run. It is only present if the event names another key than the flow computes.
    key: str
    # What the outputs of its pipeline came to. Absent when the pipeline declares none, or the run has not succeeded.
    outputs: Dict[str, Any]
    # Why the run was cancelled or ignored.
    reason: str
    # The id of its run.
    run: str
    # How the run has ended. Absent for a caller who has not waited.
    status: str
    # true if it is not known yet whether the state of the key will allow the event. This happens in a flow with states and otherwise: reject, if earlier events of the key are due or the event is due later. If the state then does not allow it, the run ends as ignored. If absent, the state allows the event.
    undecided: bool


class Run(TypedDict, total=False):
    """A Run is a run as it is now."""

    # When the event was stored.
    accepted: str
    # true if the run waits for an earlier run of its key.
    blocked: bool
    # true if later runs of the key wait until somebody retries or cancels this one. Absent otherwise.
    blocks: bool
    # The hash of the definition that the run began with.
    bundle: str
    cancelling: str
    # When a parked or scheduled run continues.
    due: str
    error: str
    # The class of the error that failed the run: timeout, deadline, connection, credentials, certificate, schema, a status such as 503, or other. quarantined: it is parked because nodes died of it. damaged: its data in the store cannot be read.
    error_class: str
    event: "RunEvent"
    # The path of the handler that failed the run.
    failed_handler: str
    finished: Optional[str]
    flow: str
    # How often an operator has retried the run.
    generation: int
    # The outcome of each handler, in the order of the pipeline.
    handlers: List["RunHandler"]
    id: str
    key: str
    labels: Dict[str, str]
    migrates_to: str
    # The compensations that have failed for good. A retry repeats only these.
    not_undone: List["NotUndone"]
    outputs: Dict[str, Any]
    pipeline: str
    # The reason why the run was ignored or cancelled.
    reason: str
    rerun_as: str
    rerun_by: str
    rerun_from: str
    rerun_of: str
    rerun_reason: str
    # The shared state so far, including that of the flow.
    shared_state: Dict[str, Any]
    # The number of its current stage, from 1; 0 before it begins.
    stage: int
    started: Optional[str]
    status: str


class Task(TypedDict, total=False):
    """A Task is work for a queue."""

    # When the task is due. Not together with delay.
    at: str
    # The delay until the task is due: text such as 90s, or seconds. Not together with at.
    delay: Union[str, float]
    # How long the task may wait beyond its time without harm: text such as 90s, or seconds.
    delay_tolerance: Union[str, float]
    # The entity that the task is about. Events of one key run one at a time, in order. For tasks, the queue section of their type or its workers decide.
    key: str
    # What happens to the task if another one has its unique name. The default is keep.
    on_duplicate: str
    # The content: any JSON value.
    payload: Any
    # Higher goes first among tasks that are due.
    priority: int
    # For tasks only: the longest time of one attempt.
    timeout: Union[str, float]
    # For tasks only: its name among the unfinished tasks of its type.
    unique: str


class TaskReceipt(TypedDict, total=False):
    """A TaskReceipt is the outcome of putting a task."""

    # The reason why the task was refused.
    error: str
    # The id of the task in the queue.
    id: str
    # added; or, if another task has its unique name: kept (the other one stays), merged, replaced or follows. For refused, error has the reason.
    outcome: str
    # The task was accepted, but may wait for ever, because no worker asks for its type: check the spelling. For an array, the reply as a whole has the warning.
    warning: str
