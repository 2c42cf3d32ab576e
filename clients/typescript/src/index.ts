export { Client, type ClientOptions, type CallOptions } from './client.js';
export { Problem, Unreachable } from './errors.js';
export { Worker, Permanent, RetryAfter, Lost, Stopping, type Handler, type WorkerOptions } from './worker.js';
export type * from './messages.js';
