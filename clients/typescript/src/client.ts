import { Problem, problemOf, Unreachable } from './errors.js';
import type { Event, Receipt, ReceiptItem, Result, Run, Task, TaskReceipt } from './messages.js';

/** Options of a client. */
export interface ClientOptions {
  /** The bearer token. The default is none. */
  token?: string;
  /** How often a call is tried. The default is 5. */
  attempts?: number;
}

/** Options of one call. */
export interface CallOptions {
  /** Ends the call. */
  signal?: AbortSignal;
}

interface Request extends CallOptions {
  method: 'GET' | 'POST';
  path: string;
  body?: unknown;
  /** How many milliseconds longer the server may take for the reply. */
  wait?: number;
  /** The call must not be retried. */
  once?: boolean;
}

const replyWithin = 15_000;
const waitAtOnce = 30_000;
const silentAtMost = 45_000; // A stream sends a comment every 15 s.
const longestPause = 5_000;

/**
 * A Client calls a procaas server. Each call is retried while the server is away or overloaded. An event keeps its id meanwhile, so it
 * starts one run. Errors of the server are a {@link Problem}. If it does not answer, they are {@link Unreachable}.
 */
export class Client {
  readonly #base: string;
  readonly #token: string | undefined;
  readonly #attempts: number;

  /** Makes a client of a server, such as http://127.0.0.1:8080. */
  constructor(server: string, options: ClientOptions = {}) {
    this.#base = server.replace(/\/+$/, '');
    this.#token = options.token;
    this.#attempts = options.attempts ?? 5;
  }

  /** Submits an event, and returns which run it has started. An event without an id gets one. */
  submit(event: Event, options: CallOptions = {}): Promise<Receipt> {
    return this.call({ method: 'POST', path: '/v1/events', body: named(event), ...options });
  }

  /**
   * Submits up to 1,000 events. Returns one outcome for each, in order. If the server refuses all, it throws a {@link Problem} with the
   * reasons.
   */
  async submitMany(events: Event[], options: CallOptions = {}): Promise<ReceiptItem[]> {
    const body = events.map(named);
    const reply = await this.call<{ items: ReceiptItem[] }>({ method: 'POST', path: '/v1/events', body, ...options });
    return reply.items;
  }

  /** Submits an event, and waits for the end of its run. Look at the status of the result: a run may have failed. */
  async submitAndWait(event: Event, options: CallOptions = {}): Promise<Result> {
    const body = named(event);
    for (;;) {
      const path = `/v1/events?wait=${waitAtOnce / 1000}s`;
      const result = await this.call<Result>({ method: 'POST', path, body, wait: waitAtOnce, ...options });
      if (result.status) return result;
    }
  }

  /** Reads a run as it is now. */
  run(id: string, options: CallOptions = {}): Promise<Run> {
    return this.call({ method: 'GET', path: `/v1/runs/${encodeURIComponent(id)}`, ...options });
  }

  /** Waits for the end of a run. */
  async wait(id: string, options: CallOptions = {}): Promise<Run> {
    for (;;) {
      const path = `/v1/runs/${encodeURIComponent(id)}?wait=${waitAtOnce / 1000}s`;
      const run = await this.call<Run>({ method: 'GET', path, wait: waitAtOnce, ...options });
      if (run.finished) return run;
    }
  }

  /**
   * Returns the states of a run: the present one, one after each saved step, and the end. It connects again if the connection breaks.
   */
  async *follow(id: string, options: CallOptions = {}): AsyncGenerator<Run, void, undefined> {
    for (let attempt = 1; ; attempt++) {
      try {
        for await (const { event, data } of this.#stream(`/v1/runs/${encodeURIComponent(id)}/progress`, options.signal)) {
          attempt = 1;
          yield JSON.parse(data) as Run;
          if (event === 'end') return;
        }
      } catch (error) {
        if (attempt >= this.#attempts || !passes(error, options.signal)) throw this.#typed(error, options.signal);
        await pause(attempt, error, options.signal);
      }
    }
  }

  /** Puts a task into a queue. It is retried only if the task has a unique name: otherwise it could be there twice. */
  putTask(queue: string, task: Task, options: CallOptions = {}): Promise<TaskReceipt> {
    const path = `/v1/queues/${encodeURIComponent(queue)}/tasks`;
    return this.call({ method: 'POST', path, body: task, once: !task.unique, ...options });
  }

  /** Makes a call until it is answered. @internal */
  async call<T>(request: Request): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      const limit = limited(replyWithin + (request.wait ?? 0), request.signal);
      try {
        const reply = await this.#send(request, limit.signal);
        return (await reply.json()) as T;
      } catch (error) {
        if (request.once || attempt >= this.#attempts || !passes(error, request.signal)) throw this.#typed(error, request.signal);
        await pause(attempt, error, request.signal);
      } finally {
        limit.end();
      }
    }
  }

  #typed(error: unknown, signal?: AbortSignal): unknown {
    return error instanceof Problem || signal?.aborted ? error : new Unreachable(this.#base, error);
  }

  async #send(request: Request, signal: AbortSignal): Promise<Response> {
    const headers: Record<string, string> = {};
    if (this.#token) headers['authorization'] = `Bearer ${this.#token}`;
    const init: RequestInit = { method: request.method, headers, signal };
    if (request.body !== undefined) {
      headers['content-type'] = 'application/json';
      init.body = JSON.stringify(request.body);
    }
    const reply = await fetch(this.#base + request.path, init);
    if (!reply.ok) throw await problemOf(reply);
    return reply;
  }

  /** Reads one stream of server-sent events. Throws when it breaks. */
  async *#stream(path: string, signal?: AbortSignal): AsyncGenerator<{ event: string; data: string }, void, undefined> {
    const limit = limited(silentAtMost, signal);
    try {
      const reply = await this.#send({ method: 'GET', path }, limit.signal);
      if (!reply.body) throw new TypeError('the stream has no body');
      let rest = '';
      let event = '';
      for await (const text of reply.body.pipeThrough(new TextDecoderStream())) {
        limit.again();
        const lines = (rest + text).split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) {
          if (line.startsWith('event: ')) event = line.slice(7);
          if (line.startsWith('data: ')) yield { event, data: line.slice(6) };
        }
      }
      throw new TypeError('the stream ended before the run');
    } finally {
      limit.end();
    }
  }
}

/** Sets the id of an event that has none, so that a retry starts no second run. */
function named(event: Event): Event {
  return event.id ? event : { ...event, id: globalThis.crypto.randomUUID() };
}

/** Whether an error may pass: the server is away or overloaded, or the connection broke. */
function passes(error: unknown, signal?: AbortSignal): boolean {
  return !signal?.aborted && (!(error instanceof Problem) || error.temporary);
}

/** Waits before the next attempt: what the server asks for, or longer each time. @internal */
export function pause(attempt: number, error?: unknown, signal?: AbortSignal): Promise<void> {
  let ms = Math.min(100 * 2 ** (attempt - 1), longestPause);
  if (error instanceof Problem && error.retryAfter > 0) ms = error.retryAfter;
  return sleep(ms * (1 + Math.random() / 4), signal);
}

/** Waits, and rejects when the signal says so. */
function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, ms);
    signal?.addEventListener('abort', stop, { once: true });
  });
}

/** A signal that aborts after a time, or with another one. */
function limited(ms: number, outer?: AbortSignal): { signal: AbortSignal; again: () => void; end: () => void } {
  const inner = new AbortController();
  const abort = () => inner.abort(outer?.reason);
  const late = () => inner.abort(new DOMException(`no answer within ${ms / 1000} s`, 'TimeoutError'));
  if (outer?.aborted) abort();
  outer?.addEventListener('abort', abort, { once: true });
  let timer = setTimeout(late, ms);
  return {
    signal: inner.signal,
    again: () => {
      clearTimeout(timer);
      timer = setTimeout(late, ms);
    },
    end: () => {
      clearTimeout(timer);
      outer?.removeEventListener('abort', abort);
    },
  };
}
