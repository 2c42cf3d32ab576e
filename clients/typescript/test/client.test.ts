import assert from 'node:assert/strict';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { test, type TestOptions } from 'node:test';
import {
  Client, Permanent, Problem, RetryAfter, Stopping, Unreachable, Worker, type Handler, type QueuedTask, type Run, type WorkerOptions,
} from '../src/index.js';

/** Where a procaas with the flows of docs/authoring/clients.md listens. */
const server = process.env.PROCAAS_SERVER ?? '';
assert.ok(server, 'PROCAAS_SERVER names no server; run in the root of the repository: go test ./cmd/procaas -run TestClients');

const client = new Client(server);
const bounded: TestOptions = { timeout: 120_000, concurrency: true };

test('the client', bounded, async (t) => {
  const parts: Record<string, () => Promise<void>> = {
    submitAndWait, submitMany, follow, refusals, away, lostAnswer, retries, leases, stopping, answers,
  };
  await Promise.all(Object.entries(parts).map(([name, part]) => t.test(name, part)));
});

async function submitAndWait(): Promise<void> {
  const event = { type: 'quote', id: 'ts-1', payload: { items: 3 } };
  const result = await client.submitAndWait(event);
  assert.equal(result.status, 'succeeded');
  assert.equal(result.outputs?.price, 60);
  assert.deepEqual(await client.submit(event), { event: 'ts-1', run: result.run, duplicate: true });
  const run = await client.wait(result.run);
  assert.equal(run.event.id, 'ts-1');
}

async function submitMany(): Promise<void> {
  const items = await client.submitMany([{ type: 'quote', payload: { items: 1 } }, { type: 'nothing' }]);
  assert.ok(items[0]?.run);
  assert.equal(items[1]?.error?.code, 'unknown_event_type');
}

async function follow(): Promise<void> {
  const { run } = await client.submit({ type: 'quote', payload: { items: 1 } });
  let last: Run | undefined;
  for await (const state of client.follow(run)) last = state;
  assert.equal(last?.status, 'succeeded');
  await assert.rejects(client.follow('nothing').next(), (e) => e instanceof Problem && e.code === 'run_not_found');
}

async function refusals(): Promise<void> {
  await assert.rejects(client.submit({ type: 'nothing' }), (e) =>
    e instanceof Problem && e.code === 'unknown_event_type' && e.status === 422 && !e.temporary);
}

/** Calls a server that is away. */
async function away(): Promise<void> {
  const gone = http.createServer();
  await new Promise<void>((resolve) => gone.listen(0, '127.0.0.1', resolve));
  const { port } = gone.address() as AddressInfo;
  await new Promise((resolve) => gone.close(resolve));
  const lonely = new Client(`http://127.0.0.1:${port}`, { attempts: 2 });
  for (const call of [() => lonely.run('r'), () => lonely.follow('r').next()]) {
    await assert.rejects(call, (e) => e instanceof Unreachable && e.message === `http://127.0.0.1:${port} does not answer: connect ECONNREFUSED 127.0.0.1:${port}`);
  }
  const given = new AbortController();
  given.abort(new Error('given up'));
  await assert.rejects(lonely.run('r', { signal: given.signal }), /^Error: given up$/);
}

/** Lets the server accept an event, and loses its answer. */
async function lostAnswer(): Promise<void> {
  let calls = 0;
  const proxy = http.createServer((request, reply) => {
    const forward = http.request(server + request.url, { method: request.method, headers: request.headers }, (answer) => {
      if (++calls === 1) {
        request.socket.destroy();
        answer.resume();
        return;
      }
      reply.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.pipe(reply);
    });
    request.pipe(forward);
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const { port } = proxy.address() as AddressInfo;
  const receipt = await new Client(`http://127.0.0.1:${port}`).submit({ type: 'quote', payload: { items: 1 } });
  proxy.closeAllConnections();
  proxy.close();
  assert.equal(receipt.duplicate, true);
  assert.equal(calls, 2);
}

/** Runs a worker until stop is called. */
function work(type: string, handler: Handler, options: WorkerOptions = {}): { stop: () => Promise<void> } {
  const stopping = new AbortController();
  const ended = new Worker(client, { [type]: handler }, { poll: 1_000, ...options }).run(stopping.signal);
  return {
    stop: () => {
      stopping.abort();
      return ended;
    },
  };
}

async function retries(): Promise<void> {
  await client.putTask('retried', { payload: 'flaky' });
  await client.putTask('retried', { payload: 'broken' });
  const attempts: unknown[] = [];
  await new Promise<void>((resolve, reject) => {
    const worker = work('retried', (task) => {
      attempts.push(task.payload);
      if (attempts.length === 3) worker.stop().then(resolve, reject);
      if (task.payload === 'broken') throw new Permanent('no such letter');
      if (task.attempt === 1) throw new RetryAfter(1, 'busy');
    }, { concurrency: 2 });
  });
  assert.deepEqual(attempts.sort(), ['broken', 'flaky', 'flaky']);
}

async function leases(): Promise<void> {
  await client.putTask('long', { payload: null });
  await new Promise<void>((resolve, reject) => {
    const worker = work('long', async (task) => {
      const first = Date.parse(task.until ?? '');
      for (let until = first; until <= first; await sleep(50)) {
        const page = await (await fetch(`${server}/v1/queues/long/tasks?id=${task.id}`)).json() as { items: QueuedTask[] };
        until = Date.parse(page.items[0]?.until ?? '');
      }
      worker.stop().then(resolve, reject);
    }, { lease: 6_000 });
  });
}

/** Stops a worker in the middle of a task. Another one makes the same attempt. */
async function stopping(): Promise<void> {
  await client.putTask('drained', { payload: null });
  await new Promise<void>((resolve, reject) => {
    const worker = work('drained', async (_task, signal) => {
      worker.stop().then(resolve, reject);
      await new Promise((ended) => signal.addEventListener('abort', ended));
      assert.ok(signal.reason instanceof Stopping);
      throw signal.reason;
    }, { grace: 1 });
  });
  const attempt = await new Promise<number>((resolve, reject) => {
    const worker = work('drained', (task) => {
      worker.stop().then(() => resolve(task.attempt), reject);
    });
  });
  assert.equal(attempt, 1);
}

/** Lets a run wait for the result of a worker. */
async function answers(): Promise<void> {
  const worker = work('scores', (task) => 2 * (task.payload as number));
  const result = await client.submitAndWait({ type: 'rate', payload: 21 });
  assert.deepEqual(result.outputs, { score: 42 });
  await worker.stop();
}
