import { Client, pause } from './client.js';
import { Problem } from './errors.js';
import type { QueuedTask } from './messages.js';

/**
 * A Handler does a task, and returns its result, which a run with queue.task gets. The signal aborts at the timeout of the task, when another worker has it, or when the worker stops. The policy
 * of the queue retries an error, unless it is {@link Permanent} or {@link RetryAfter}.
 */
export type Handler = (task: QueuedTask, signal: AbortSignal) => unknown;

/** An error that no retry can mend. The task becomes a dead letter. */
export class Permanent extends Error {
  override readonly name = 'Permanent';
}

/** An error with the delay before the next attempt, in milliseconds. */
export class RetryAfter extends Error {
  override readonly name = 'RetryAfter';
  constructor(readonly delay: number, message: string, options?: ErrorOptions) {
    super(message, options);
  }
}

/** The reason of a signal: another worker has the task, or nobody needs it. */
export class Lost extends Error {
  override readonly name = 'Lost';
}

/** The reason of a signal: the worker stops. */
export class Stopping extends Error {
  override readonly name = 'Stopping';
}

/** Options of a worker. Times are in milliseconds. */
export interface WorkerOptions {
  /** Identifies the worker for people. The default is random. */
  name?: string;
  /** How many tasks run at once, at most 1,000. The default is 1. */
  concurrency?: number;
  /** After how long without a heartbeat others may take the tasks. The default is 30 s. Heartbeats are sent three times as often. */
  lease?: number;
  /** How long one request waits for tasks, at most 20 s. A worker that stops waits for its last request. The default is 5 s. */
  poll?: number;
  /** How long a worker that stops lets its tasks run before it aborts them. The default is 10 s. */
  grace?: number;
  /** Is called for failed attempts, and while the server cannot be reached. */
  onError?: (error: unknown, task?: QueuedTask) => void;
}

interface Held {
  abort: AbortController;
  until: number; // the end of the lease
}

/** A Worker takes tasks and does them. Any number of workers, in any language, share the queues. */
export class Worker {
  readonly #client: Client;
  readonly #handlers: Record<string, Handler>;
  readonly #o: Required<WorkerOptions>;
  readonly #held = new Map<string, Held>();
  readonly #tasks = new Set<Promise<void>>();

  /** Makes a worker with a handler for each type of tasks. */
  constructor(client: Client, handlers: Record<string, Handler>, options: WorkerOptions = {}) {
    this.#client = client;
    this.#handlers = handlers;
    this.#o = {
      name: `worker-${globalThis.crypto.randomUUID().slice(0, 8)}`,
      concurrency: 1, lease: 30_000, poll: 5_000, grace: 10_000, onError: () => {}, ...options,
    };
  }

  /**
   * Does tasks until the signal aborts. Then it takes no more, waits for those in progress, and returns unfinished ones to the queue
   * without counting the attempt. It throws if the server refuses the worker.
   */
  async run(signal: AbortSignal): Promise<void> {
    const beats = setInterval(() => void this.#beat(), this.#o.lease / 3);
    try {
      await this.#claims(signal);
    } finally {
      const late = setTimeout(() => {
        for (const held of this.#held.values()) held.abort.abort(new Stopping('the worker stops'));
      }, this.#o.grace);
      while (this.#tasks.size > 0) await Promise.race(this.#tasks);
      clearTimeout(late);
      clearInterval(beats);
    }
  }

  /** Takes tasks whenever one may begin, until the signal aborts or the server refuses. */
  async #claims(signal: AbortSignal): Promise<void> {
    const stopped = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
    while (!signal.aborted) {
      const free = this.#o.concurrency - this.#tasks.size;
      if (free <= 0) {
        await Promise.race([...this.#tasks, stopped]);
        continue;
      }
      for (const task of await this.#claim(free, signal)) {
        if (signal.aborted) await this.#tell('snooze', { tasks: [{ receipt: task.receipt }] });
        else this.#begin(task);
      }
    }
  }

  async #claim(limit: number, signal: AbortSignal): Promise<QueuedTask[]> {
    const types = Object.keys(this.#handlers).map((type) => ({ type, limit }));
    const { name: worker, lease, poll } = this.#o;
    const body = { worker, types, limit, lease: lease / 1000, wait: poll / 1000 };
    try {
      const reply = await this.#client.call<{ items: QueuedTask[] }>({ method: 'POST', path: '/v1/queues/claim', body, wait: poll });
      return reply.items;
    } catch (error) {
      if (error instanceof Problem && !error.temporary) throw error;
      this.#o.onError(error);
      await pause(6, error, signal).catch(() => {}); // The worker stops.
      return [];
    }
  }

  /** Does a task, and reports its outcome. */
  #begin(task: QueuedTask): void {
    const receipt = task.receipt ?? '';
    const abort = new AbortController();
    this.#held.set(receipt, { abort, until: Date.now() + this.#o.lease });
    const done = this.#do(task, abort).finally(() => {
      this.#held.delete(receipt);
      this.#tasks.delete(done);
    });
    this.#tasks.add(done);
  }

  async #do(task: QueuedTask, abort: AbortController): Promise<void> {
    const late = task.timeout && setTimeout(() => abort.abort(new DOMException('the task timed out', 'TimeoutError')), task.timeout * 1000);
    let failure: { error: unknown } | undefined;
    let result: unknown;
    try {
      result = await this.#handlers[task.type]?.(task, abort.signal);
    } catch (error) {
      failure = { error };
    }
    if (late) clearTimeout(late);
    const { receipt } = task;
    if (abort.signal.reason instanceof Lost) return;
    if (!failure) return this.#tell('complete', { results: [{ receipt, result }] }).then(() => {});
    if (abort.signal.reason instanceof Stopping) return this.#tell('snooze', { tasks: [{ receipt }] }).then(() => {});
    const { error } = failure;
    this.#o.onError(error, task);
    const verdict = error instanceof Permanent ? { final: true } : error instanceof RetryAfter ? { delay: error.delay / 1000 } : {};
    await this.#tell('fail', { tasks: [{ receipt, error: error instanceof Error ? error.message : String(error), ...verdict }] });
  }

  /** Extends the leases of all tasks that this worker has, and ends those that it has lost. */
  async #beat(): Promise<void> {
    const receipts = [...this.#held.keys()];
    if (receipts.length === 0) return;
    const until = Date.now() + this.#o.lease;
    const lost = await this.#tell('heartbeat', { receipts, lease: this.#o.lease / 1000 });
    for (const receipt of receipts) {
      const held = this.#held.get(receipt);
      if (!held) continue;
      if (lost?.includes(receipt) || (!lost && Date.now() > held.until)) held.abort.abort(new Lost('the task no longer belongs to this worker'));
      else if (lost) held.until = until;
    }
  }

  /** Reports outcomes, and returns the lost receipts. If nobody answers, others take the tasks after the lease. */
  async #tell(verb: string, body: unknown): Promise<string[] | undefined> {
    try {
      const reply = await this.#client.call<{ lost: string[] }>({ method: 'POST', path: `/v1/queues/${verb}`, body });
      return reply.lost;
    } catch (error) {
      this.#o.onError(error);
      return undefined;
    }
  }
}
