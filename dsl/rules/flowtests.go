package rules

// TestedPipelines are the pipelines of the examples about test files.
const TestedPipelines = `services:
  - {id: push, url: "http://127.0.0.1:9083"}
pipelines:
  - id: new-order
    stages:
      - id: notify
        handlers:
          - id: driver
            request: {service: push, path: /v1/push, body: {to: !$ event.payload.driver}}
`

// testRules documents the codes of files of tests.
func testRules() []Rule {
	return []Rule{{
		Code:  TestName,
		Title: "a test names something that is not there",
		Why: "Mocks and expectations name handlers by their path, which may be shortened from the left: " +
			"pipeline/stage/handler, stage/handler or handler. A name that fits nothing would never be used.",
		Before: `tests:
  - name: the driver is told
    events: {type: new-order, payload: {driver: d-1}}
    mocks:
      notify/drivr: {reply: {}}
`,
		After: `tests:
  - name: the driver is told
    events: {type: new-order, payload: {driver: d-1}}
    mocks:
      notify/driver: {reply: {}}
`,
	}, {
		Code:  TestPlace,
		Title: "a test says something where it has no meaning",
		Why: "expect of a test is about its one run. With several events it could mean any of them, so each event has an " +
			"expect of its own. Fields that repeat or contradict each other are refused as well.",
		Before: `tests:
  - name: the driver is told
    events:
      - {type: new-order, payload: {driver: d-1}}
      - {type: new-order, payload: {driver: d-2}}
    mocks:
      driver: {reply: {}}
    expect: {status: succeeded}
`,
		After: `tests:
  - name: the driver is told
    events:
      - {type: new-order, payload: {driver: d-1}, expect: {status: succeeded}}
      - {type: new-order, payload: {driver: d-2}, expect: {status: succeeded}}
    mocks:
      driver: {reply: {}}
`,
	}}
}
