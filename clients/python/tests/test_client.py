"""Tests against a real server with the flows of docs/authoring/clients.md."""

import faulthandler
import http.client
import json
import os
import socket
import threading
import time
import unittest
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from procaas import Client, Permanent, Problem, RetryAfter, Unreachable, Worker

SERVER = os.environ.get("PROCAAS_SERVER", "")
if not SERVER:
    raise SystemExit("PROCAAS_SERVER names no server; run in the root of the repository: go test ./cmd/procaas -run TestClients")
faulthandler.dump_traceback_later(120, exit=True)  # ends a test that waits in vain


class LosesFirstAnswer(BaseHTTPRequestHandler):
    """Forwards calls, and hangs up instead of the first answer."""

    calls = 0

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        forward = http.client.HTTPConnection(urlsplit(SERVER).netloc)
        forward.request("POST", self.path, body, {"Content-Type": "application/json"})
        answer = forward.getresponse()
        data = answer.read()
        forward.close()
        type(self).calls += 1
        if self.calls == 1:
            self.close_connection = True
            return
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class ClientTest(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client(SERVER)

    def test_submit_and_wait(self) -> None:
        event = {"type": "quote", "id": "py-1", "payload": {"items": 3}}
        result = self.client.submit_and_wait(event)
        self.assertEqual((result["status"], result["outputs"]["price"]), ("succeeded", 60))
        again = self.client.submit(event)
        self.assertEqual(again, {"event": "py-1", "run": result["run"], "duplicate": True})
        self.assertEqual(self.client.wait(result["run"], timeout=60)["event"]["id"], "py-1")

    def test_submit_and_wait_submits_without_time_to_wait(self) -> None:
        event = {"type": "quote", "id": "py-hasty", "payload": {"items": 3}}
        try:
            self.client.submit_and_wait(event, timeout=0)
        except TimeoutError:
            pass
        self.assertTrue(self.client.submit(event)["duplicate"])

    def test_submit_many_returns_each_outcome(self) -> None:
        first, second = self.client.submit_many([{"type": "quote", "payload": {"items": 1}}, {"type": "nothing"}])
        self.assertTrue(first["run"])
        self.assertEqual(second["error"]["code"], "unknown_event_type")

    def test_follow_ends_with_the_run(self) -> None:
        receipt = self.client.submit({"type": "quote", "payload": {"items": 1}})
        states = list(self.client.follow(receipt["run"]))
        self.assertEqual(states[-1]["status"], "succeeded")
        with self.assertRaises(Problem) as caught:
            list(self.client.follow("nothing"))
        self.assertEqual(caught.exception.code, "run_not_found")

    def test_refusals_are_problems(self) -> None:
        with self.assertRaises(Problem) as caught:
            self.client.submit({"type": "nothing"})
        problem = caught.exception
        self.assertEqual((problem.code, problem.status, problem.temporary), ("unknown_event_type", 422, False))

    def test_server_that_is_away_is_unreachable(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # and does not listen
            away = Client(f"http://127.0.0.1:{taken.getsockname()[1]}", attempts=2)
            for call in (lambda: away.run("r"), lambda: list(away.follow("r"))):
                with self.assertRaisesRegex(Unreachable, r"127\.0\.0\.1:\d+ does not answer: .*refused"):
                    call()

    def test_lost_answer_starts_no_second_run(self) -> None:
        with ThreadingHTTPServer(("127.0.0.1", 0), LosesFirstAnswer) as proxy:
            threading.Thread(target=proxy.serve_forever, daemon=True).start()
            client = Client(f"http://127.0.0.1:{proxy.server_address[1]}")
            receipt = client.submit({"type": "quote", "payload": {"items": 1}})
            proxy.shutdown()
        self.assertTrue(receipt["duplicate"])
        self.assertEqual(LosesFirstAnswer.calls, 2)


class WorkerTest(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client(SERVER)

    def test_retries_and_gives_up(self) -> None:
        for payload in ("flaky", "broken"):
            self.client.put_task("retried", {"payload": payload})
        attempts = []

        def handle(task) -> None:
            attempts.append(task.payload)
            if len(attempts) == 3:
                worker.stop()
            if task.payload == "broken":
                raise Permanent("no such letter")
            if task.attempt == 1:
                raise RetryAfter(0.001, "busy")

        worker = Worker(self.client, {"retried": handle}, concurrency=2, poll=1)
        worker.run()
        self.assertEqual(sorted(attempts), ["broken", "flaky", "flaky"])

    def test_extends_leases(self) -> None:
        self.client.put_task("long", {"payload": None})

        def until(task_id: str) -> str:
            with urllib.request.urlopen(f"{SERVER}/v1/queues/long/tasks?id={task_id}") as reply:
                return json.load(reply)["items"][0].get("until", "")

        def handle(task) -> None:
            first = until(task.id)
            while until(task.id) <= first:
                time.sleep(0.05)
            worker.stop()

        worker = Worker(self.client, {"long": handle}, lease=6, poll=1)
        worker.run()

    def test_returns_its_task_when_it_stops(self) -> None:
        self.client.put_task("drained", {"payload": None})
        attempts = []

        def wait(task) -> None:
            stopped.stop()
            task.cancelled.wait()
            raise RuntimeError("stopped")

        def finish(task) -> None:
            attempts.append(task.attempt)
            second.stop()

        stopped = Worker(self.client, {"drained": wait}, poll=1, grace=0.001)
        stopped.run()
        second = Worker(self.client, {"drained": finish}, poll=1)
        second.run()
        self.assertEqual(attempts, [1])

    def test_answers_a_run(self) -> None:
        worker = Worker(self.client, {"scores": lambda task: 2 * task.payload}, poll=1)
        working = threading.Thread(target=worker.run)
        working.start()
        result = self.client.submit_and_wait({"type": "rate", "payload": 21})
        worker.stop()
        working.join()
        self.assertEqual(result["outputs"], {"score": 42})


if __name__ == "__main__":
    unittest.main()
