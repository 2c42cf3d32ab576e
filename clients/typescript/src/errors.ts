import type { Fault, ProblemDetails } from './messages.js';

/** A Problem is an error that the server returned. Its code is stable: compare it, not the text. */
export class Problem extends Error implements ProblemDetails {
  override readonly name = 'Problem';
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly code: string;
  readonly errors: Fault[];
  /** How many milliseconds the server asks to wait; 0 if it does not say. */
  readonly retryAfter: number;

  constructor(details: ProblemDetails, retryAfter = 0) {
    super(details.code ? `${details.title} (${details.code}): ${details.detail}` : details.title);
    this.type = details.type;
    this.title = details.title;
    this.status = details.status;
    this.detail = details.detail;
    this.code = details.code;
    this.errors = details.errors ?? [];
    this.retryAfter = retryAfter;
  }

  /** Whether the same call may succeed later. */
  get temporary(): boolean {
    return [429, 502, 503, 504].includes(this.status);
  }
}

/** The server did not answer, or the connection broke. It may have taken the call: the cause says what happened last. */
export class Unreachable extends Error {
  override readonly name = 'Unreachable';

  constructor(server: string, cause: unknown) {
    const inner = cause instanceof Error ? (cause.cause ?? cause) : cause; // fetch says no more than that it has failed
    super(`${server} does not answer: ${inner instanceof Error ? inner.message : String(inner)}`, { cause });
  }
}

/** Reads a refusal. One that is not from procaas, such as a proxy's, has an empty code. */
export async function problemOf(reply: Response): Promise<Problem> {
  const text = await reply.text();
  let details: Partial<ProblemDetails> = {};
  try {
    details = JSON.parse(text) as Partial<ProblemDetails>;
  } catch {
    // It is not JSON: the status says what there is to know.
  }
  const seconds = Number(reply.headers.get('retry-after') ?? 0);
  return new Problem(
    { type: '', title: `${reply.status} ${reply.statusText}`, detail: '', code: '', ...details, status: reply.status },
    Number.isFinite(seconds) ? seconds * 1000 : 0,
  );
}
