// Generated from schemas/openapi.json by TestMessagesOfClients.

/** An Event starts a run. */
export interface Event {
  /** When the event is due. The default is now. */
  at?: string;
  /** How long the event may wait beyond that without harm: text such as 90s, or seconds. */
  delay_tolerance?: string | number;
  /** Unique within source: the same id again is a duplicate. The default is an id that the engine makes. */
  id?: string;
  /** The entity, for flows without a key expression. Other flows compute the key, and the reply has it if it differs. */
  key?: string;
  /** What to find the run by: up to 8 names of up to 40 letters, digits and ._/- with values of up to 100 bytes. */
  labels?: Record<string, string>;
  /** What happened: any JSON value. Whole numbers of 64 bits stay exact. */
  payload?: unknown;
  /** Higher goes first among events that are due. */
  priority?: number;
  /** The sender. */
  source?: string;
  /** The type, which chooses the pipeline. */
  type: string;
}

/** A RunEvent is the event of a run. */
export interface RunEvent {
  id: string;
  key?: string;
  /** Which message of a subscription, or delivery of a webhook, the event was, for people. Absent for others, and in lists. */
  origin?: string;
  payload?: unknown;
  source: string;
  time: string;
  type: string;
}

/** A Fault is an error with its location. */
export interface Fault {
  /** In a refused array of events: the reason for the event at this location. */
  code?: string;
  /** The location: a JSON pointer into the body, or query/NAME, path/NAME or header/NAME. */
  location: string;
  /** What is wrong, for people. */
  message: string;
}

/** A RunHandler is the outcome of a handler in a run. */
export interface RunHandler {
  attempts: number;
  /** When a waiting handler continues; absent if unknown. */
  due?: string;
  error: string;
  finished: string | null;
  items?: RunItems;
  outcome: 'succeeded' | 'failed' | 'skipped' | 'running' | 'waiting' | 'unknown';
  /** pipeline/stage/handler. */
  path: string;
  /** The reason why the handler was skipped, or what it waits for. */
  reason: string;
  started: string | null;
  within?: string;
}

/** An ItemError is the error of one element. */
export interface ItemError {
  error: string;
  item: number;
}

/** A RunItems counts the elements of a loop. */
export interface RunItems {
  errors?: ItemError[];
  failed: number;
  running: number;
  succeeded: number;
  total: number;
  waiting: number;
}

/** A NotUndone is a compensation that has failed. */
export interface NotUndone {
  /** Why its compensation failed. */
  error: string;
  /** The path of the handler, after those of the calls around it. */
  handler: string;
}

/** A ProblemDetails is the body of an error. */
export interface ProblemDetails {
  /** The kind of problem, for programs. Codes are stable. */
  code: string;
  /** The found and expected values and the remedy, for people. */
  detail: string;
  /** The errors with their locations, if known. */
  errors?: Fault[];
  /** The HTTP status. */
  status: number;
  /** The kind of problem, for people. */
  title: string;
  /** A name of the kind of problem, made from the code. */
  type: string;
}

/** A QueuedTask is a task as a worker gets it. */
export interface QueuedTask {
  /** The number of this attempt, from 1. For a dead letter, that of the last one. */
  attempt: number;
  /** The end of its tolerance. */
  deadline: string;
  /** When it is due. */
  due: string;
  /** When it was completed, cancelled or failed for good; absent before. */
  ended?: string;
  /** The error of the last failed attempt. */
  error?: string;
  /** Its 64-bit number, as text, because not every JSON parser keeps such numbers exact. */
  id: string;
  /** The entity that it is about; absent for none. */
  key?: string;
  /** The content. Completed tasks no longer have it. A list omits payloads over 16 KiB: read the task by its id. */
  payload?: unknown;
  /** Higher goes first among due tasks. The default is 0. */
  priority: number;
  /** The receipt of this attempt, which the worker passes in later calls. */
  receipt?: string;
  /** scheduled: it is not due yet. ready: workers can take it. waiting: its key is at its limit. starting: a worker holds it and has not started. running: a worker works on it. failed: it is a dead letter. */
  state: 'scheduled' | 'ready' | 'waiting' | 'starting' | 'running' | 'completed' | 'failed' | 'cancelled';
  /** The longest time of one attempt in seconds; absent if the worker decides. */
  timeout?: number;
  /** The kind of work: the id of a pipeline with a queue section, or any other name. */
  type: string;
  /** Its name among the unfinished tasks of its type; absent for none. */
  unique?: string;
  /** The time by which its worker must report. */
  until?: string;
  /** The name of the worker that took it, for people. */
  worker?: string;
}

/** A Receipt says which run an event has started. */
export interface Receipt {
  /** true if the event was accepted before. run is the earlier run. */
  duplicate: boolean;
  /** The event's id. */
  event: string;
  /** The key of the run. It is only present if the event names another key than the flow computes. */
  key?: string;
  /** The id of its run. */
  run: string;
  /** true if it is not known yet whether the state of the key will allow the event. This happens in a flow with states and otherwise: reject, if earlier events of the key are due or the event is due later. If the state then does not allow it, the run ends as ignored. If absent, the state allows the event. */
  undecided?: boolean;
}

/** A ReceiptItem is the outcome of one event of several. */
export interface ReceiptItem {
  /** true if the event was accepted before; absent if it is refused. */
  duplicate?: boolean;
  /** The reason why the event is refused; absent if it is accepted. */
  error?: ProblemDetails;
  /** The event's id. */
  event?: string;
  /** The key of the run. It is only present if the event names another key than the flow computes. */
  key?: string;
  /** The id of its run; absent if the event is refused. */
  run?: string;
  /** As in a single receipt. */
  undecided?: boolean;
}

/** A Result says how the run of an event has ended. */
export interface Result {
  /** true if the event was accepted before. run is the earlier run. */
  duplicate: boolean;
  /** Why the run has failed, for people. */
  error?: string;
  /** The class of the error: timeout, connection, a status such as 503, schema, other. */
  error_class?: string;
  /** The event's id. */
  event: string;
  /** Of a run that has failed: the path of the handler, or of the pipeline. */
  failed_handler?: string;
  /** The key of the run. It is only present if the event names another key than the flow computes. */
  key?: string;
  /** What the outputs of its pipeline came to. Absent when the pipeline declares none, or the run has not succeeded. */
  outputs?: Record<string, unknown>;
  /** Why the run was cancelled or ignored. */
  reason?: string;
  /** The id of its run. */
  run: string;
  /** How the run has ended. Absent for a caller who has not waited. */
  status?: 'succeeded' | 'failed' | 'cancelled' | 'ignored';
  /** true if it is not known yet whether the state of the key will allow the event. This happens in a flow with states and otherwise: reject, if earlier events of the key are due or the event is due later. If the state then does not allow it, the run ends as ignored. If absent, the state allows the event. */
  undecided?: boolean;
}

/** A Run is a run as it is now. */
export interface Run {
  /** When the event was stored. */
  accepted: string;
  /** true if the run waits for an earlier run of its key. */
  blocked: boolean;
  /** true if later runs of the key wait until somebody retries or cancels this one. Absent otherwise. */
  blocks?: boolean;
  /** The hash of the definition that the run began with. */
  bundle?: string;
  cancelling?: string;
  /** When a parked or scheduled run continues. */
  due?: string;
  error: string;
  /** The class of the error that failed the run: timeout, deadline, connection, credentials, certificate, schema, a status such as 503, or other. quarantined: it is parked because nodes died of it. damaged: its data in the store cannot be read. */
  error_class: string;
  event: RunEvent;
  /** The path of the handler that failed the run. */
  failed_handler: string;
  finished: string | null;
  flow: string;
  /** How often an operator has retried the run. */
  generation: number;
  /** The outcome of each handler, in the order of the pipeline. */
  handlers: RunHandler[];
  id: string;
  key: string;
  labels?: Record<string, string>;
  migrates_to?: string;
  /** The compensations that have failed for good. A retry repeats only these. */
  not_undone?: NotUndone[];
  outputs?: Record<string, unknown>;
  pipeline: string;
  /** The reason why the run was ignored or cancelled. */
  reason: string;
  rerun_as?: string;
  rerun_by?: string;
  rerun_from?: string;
  rerun_of?: string;
  rerun_reason?: string;
  /** The shared state so far, including that of the flow. */
  shared_state?: Record<string, unknown>;
  /** The number of its current stage, from 1; 0 before it begins. */
  stage: number;
  started: string | null;
  status: 'waiting' | 'running' | 'parked' | 'succeeded' | 'failed' | 'cancelled' | 'ignored';
}

/** A Task is work for a queue. */
export interface Task {
  /** When the task is due. Not together with delay. */
  at?: string;
  /** The delay until the task is due: text such as 90s, or seconds. Not together with at. */
  delay?: string | number;
  /** How long the task may wait beyond its time without harm: text such as 90s, or seconds. */
  delay_tolerance?: string | number;
  /** The entity that the task is about. Events of one key run one at a time, in order. For tasks, the queue section of their type or its workers decide. */
  key?: string;
  /** What happens to the task if another one has its unique name. The default is keep. */
  on_duplicate?: 'keep' | 'merge' | 'replace' | 'rerun';
  /** The content: any JSON value. */
  payload?: unknown;
  /** Higher goes first among tasks that are due. */
  priority?: number;
  /** For tasks only: the longest time of one attempt. */
  timeout?: string | number;
  /** For tasks only: its name among the unfinished tasks of its type. */
  unique?: string;
}

/** A TaskReceipt is the outcome of putting a task. */
export interface TaskReceipt {
  /** The reason why the task was refused. */
  error?: string;
  /** The id of the task in the queue. */
  id?: string;
  /** added; or, if another task has its unique name: kept (the other one stays), merged, replaced or follows. For refused, error has the reason. */
  outcome: 'added' | 'kept' | 'merged' | 'replaced' | 'follows' | 'refused';
  /** The task was accepted, but may wait for ever, because no worker asks for its type: check the spelling. For an array, the reply as a whole has the warning. */
  warning?: string;
}
