package figures

import "fmt"

// Tables are all tables of figures on the pages. A cell has names of figures in braces.
var Tables = []Table{
	{
		Name: "flows", Group: "flows",
		Head: []string{"Flows of three HTTP calls, each durable before the next", "64 in flight", "256 in flight"},
		Rows: [][]string{
			inFlight("flows", "procaas", "flows"),
			inFlight("flows of naive", "procaas", "flows of naive"),
			inFlight("flows of grouped", "procaas", "flows of grouped"),
			inFlight("processor time of a flow, the node", "procaas", "program"),
			inFlight("processor time of a flow, PostgreSQL", "procaas", "PostgreSQL"),
			inFlight("processor time of both, of grouped", "procaas", "processor time of grouped"),
			inFlight("log of PostgreSQL for a flow", "procaas", "log"),
			inFlight("flows, if each sender waits for the result", "procaas, result awaited", "flows"),
			inFlight("processor time of a flow with an id and a key, of one without", "procaas, ids and keys", "processor time of procaas"),
			inFlight("log of PostgreSQL for a flow with an id and a key", "procaas, ids and keys", "log"),
			inFlight("flows on SQLite", "procaas on SQLite", "flows"),
			inFlight("processor time of a flow on SQLite", "procaas on SQLite", "program"),
		},
	},
	{
		Name: "programs", Group: "flows",
		Head: []string{"Program, with 64 flows in flight", "Flows", "Of the first"},
		Rows: [][]string{
			{"by hand, one commit for each step", "{naive, 64 in flight: flows}", "1"},
			{"by hand, commits shared by flows", "{grouped, 64 in flight: flows}", "{grouped, 64 in flight: flows of naive}"},
			{"procaas on PostgreSQL", "{procaas, 64 in flight: flows}", "{procaas, 64 in flight: flows of naive}"},
			{
				"procaas on PostgreSQL, senders wait for results",
				"{procaas, result awaited, 64 in flight: flows}", "{procaas, result awaited, 64 in flight: flows of naive}",
			},
			{"procaas on SQLite", "{procaas on SQLite, 64 in flight: flows}", "{procaas on SQLite, 64 in flight: flows of naive}"},
		},
	},
	{
		Name: "more-cores", Group: "flows",
		Head: []string{"Cores for nodes and PostgreSQL together", "Flows per second at most", "Log of PostgreSQL"},
		Rows: [][]string{machine(8), machine(32), machine(64)},
	},
	{
		Name: "latency", Group: "latency",
		Head: []string{"One flow, at 50 a second", "p50", "Of naive"},
		Rows: [][]string{
			{"from the POST to the durable end", "{procaas, 50 a second: p50}", "{procaas, 50 a second: p50 of naive}"},
			{
				"the same, if the sender waits for the result",
				"{procaas, result awaited, 50 a second: p50}", "{procaas, result awaited, 50 a second: p50 of naive}",
			},
			{"the same on SQLite", "{procaas on SQLite, 50 a second: p50}", "{procaas on SQLite, 50 a second: p50 of naive}"},
			{"until the `202`", "{procaas, 50 a second: p50 until the receipt}", ""},
		},
	},
	{
		Name: "recovery", Group: "recovery",
		Head: []string{"500 runs in calls of 0.5 s, after `kill -9`", "Until all have ended"},
		Rows: [][]string{
			{"one call is left, and the node starts again", "{one call, the node is started again: all succeeded}"},
			{"one call is left, and a second node takes over", "{one call, a second node takes over: all succeeded}"},
			{"three calls are left, and the node starts again", "{three calls, the node is started again: all succeeded}"},
			{"three calls are left, and a second node takes over", "{three calls, a second node takes over: all succeeded}"},
			{"three calls are left, on SQLite", "{three calls, the node is started again on SQLite: all succeeded}"},
		},
	},
	{
		Name: "intake", Group: "intake",
		Head: []string{"Events", "Figure"},
		Rows: [][]string{
			{"accepted over HTTP, in batches of 100, while none runs", "{accepted by 100 over HTTP, 8 senders: events}"},
			{"the same at 5,000 a second, p99", "{accepted by 100 over HTTP, 8 senders: p99 at 5,000 a second}"},
			{"runs of one `set` that are posted one by one, until they have ended", "{runs of one set, single: runs}"},
			{"their processor time, the node", "{runs of one set, single: program}"},
			{"their processor time, PostgreSQL", "{runs of one set, single: PostgreSQL}"},
			{"the same runs, posted by 1,000", "{runs of one set, by 1,000: runs}"},
			{"their processor time, the node", "{runs of one set, by 1,000: program}"},
			{"their processor time, PostgreSQL", "{runs of one set, by 1,000: PostgreSQL}"},
			{"time of an event in a backlog of {backlog: events}, of that in one of 1,000", "{backlog: time of an event, of a small one}"},
			{
				"processor time of an event beside {backlog: delayed events} delayed ones, of that without",
				"{backlog beside delayed events: processor time, of without}",
			},
		},
	},
	{
		Name: "queue", Group: "queue",
		Head: []string{"Tasks of the queue that do nothing", "Tasks", "Of the best by hand", "Processor time", "Log"},
		Rows: [][]string{
			tasks("by hand, finish and take together", "by hand, completion fused with the next claim"),
			tasks("by hand, finish and take apart", "by hand"),
			tasks("by hand, together, with leases and history", "by hand, fused, with leases and history"),
			tasks("procaas, Go package", "Go package"),
			tasks("procaas, workers over HTTP", "workers over HTTP"),
		},
	},
	{
		Name: "tasks", Group: "queue",
		Head: []string{"A task at 100 a second, from put to start", "Figure"},
		Rows: [][]string{
			{"p50", "{queue, from put to start: p50}"},
			{"p99", "{queue, from put to start: p99}"},
		},
	},
	{
		Name: "definitions", Group: "definitions",
		Head: []string{"1,000 pipelines of 7 handlers", "Figure"},
		Rows: [][]string{
			{"`procaas validate` takes", "{definitions: validate}"},
			{"its processor time", "{definitions: validate, processor time}"},
			{"its memory", "{definitions: validate, memory}"},
			{"processor time of a node at rest", "{definitions: at rest}"},
			{"its memory", "{definitions: memory at rest}"},
			{"a reload that changes a file takes", "{definitions: a reload}"},
			{"memory right after 16 of them", "{definitions: memory after 16 reloads}"},
			{"the same, of that at the start", "{definitions: memory after the reloads, of the start}"},
			{"memory 15 s later", "{definitions: memory after the reloads and a rest}"},
		},
	},
	{
		Name: "waits", Group: "waits",
		Head: []string{"A node with 10,000 runs", "Memory", "Processor time"},
		Rows: [][]string{
			{"that wait for a time", "{10,000 runs in wait: memory at rest}", "{10,000 runs in wait: at rest}"},
			{"that are in calls", "{10,000 runs in calls: memory at rest}", "{10,000 runs in calls: at rest}"},
		},
	},
	{
		Name: "around", Group: "around",
		Head: []string{"What a node does beside flows, with 200 handlers and 100,000 runs", "Processor time"},
		Rows: [][]string{
			{"each of 20 open tabs of the overview", "{around, PostgreSQL: each tab of / at rest}"},
			{"each of 20 open tabs of the list of runs", "{around, PostgreSQL: each tab of /console/runs at rest}"},
			{"the overview once", "{around, PostgreSQL: GET /}"},
			{"`GET /v1/runs?limit=100`", "{around, PostgreSQL: GET /v1/runs?limit=100}"},
			{"one scrape of `/metrics`", "{around, PostgreSQL: GET /metrics}"},
		},
	},
	{
		Name: "parked", Group: "around",
		Head: []string{"A node that has parked runs", "PostgreSQL", "SQLite"},
		Rows: [][]string{
			around("start until `/readyz`, beside 100,000 waiting and 200,000 parked runs", "start until /readyz beside waiting and parked runs"),
			around("memory with 100,000 parked runs", "memory with 100000 parked runs"),
			around("memory with 200,000 parked runs", "memory with 200000 parked runs"),
		},
	},
	{
		Name: "cores", Group: "cores",
		Head: []string{"Processors of the node", "Flows, 64 in flight", "Its processor time", "Flows, 256 in flight", "Its processor time"},
		Rows: [][]string{cores(1), cores(2)},
	},
	{
		Name: "fairness", Group: "fairness",
		Head: []string{"Beside a flood of", "p99, of that without a flood"},
		Rows: [][]string{
			{"a pipeline of another owner", "{beside a pipeline of another owner: p99 of that beside nothing}"},
			{"a pipeline that calls the same service", "{beside one that calls the same service: p99 of that beside nothing}"},
			{"another source of the same pipeline", "{beside another source of the same pipeline: p99 of that beside nothing}"},
			{"a pipeline whose calls take 2 s", "{beside a pipeline whose calls take 2 s: p99 of that beside nothing}"},
		},
	},
	{
		Name: "expressions", Group: "expressions",
		Head: []string{"An expression", "At least", "At most", "Allocations at most"},
		Rows: [][]string{
			{"evaluated", "{ExprEval: least}", "{ExprEval: most}", "{ExprEval: allocations}"},
			{"with the value of each part, as `explain` shows it", "{ExprTrace: least}", "{ExprTrace: most}", "{ExprTrace: allocations}"},
		},
	},
	{
		Name: "inbox", Group: "inbox",
		Head: []string{"Processor time", "1 server", "2 servers", "4 servers"},
		Rows: [][]string{
			servers("a flow of three calls, the node", "program, a flow"),
			servers("a flow, PostgreSQL on all servers", "PostgreSQL, a flow"),
			servers("a task over HTTP, the node", "program, a task"),
			servers("a task, PostgreSQL on all servers", "PostgreSQL, a task"),
		},
	},
	{
		Name: "moves", Group: "inbox",
		Head: []string{"All slots move while events arrive", "1,000 waiting runs", "100,000 waiting runs"},
		Rows: [][]string{
			moves("the slowest event waited", "slowest event"),
			moves("99 of 100 events waited at most", "p99 of events"),
			moves("the whole move", "all of it"),
			moves("processor time of a run, the node", "program"),
			moves("processor time of a run, PostgreSQL", "PostgreSQL"),
		},
	},
	{
		Name: "others-resume", Group: "others-resume",
		Head: []string{"500 flows resume after `kill -9` and restart", "Until all have ended"},
		Rows: [][]string{
			{"DBOS", "{DBOS: resumes}"},
			{"Restate", "{Restate: resumes}"},
			{"procaas at that commit", "{procaas: resumes}"},
		},
	},
	{
		Name: "others-queue", Group: "others-queue",
		Head: []string{"Tasks a second, of graphile-worker", "Ratio"},
		Rows: [][]string{
			{"procaas, Go package", "{Go package: tasks of graphile-worker}"},
			{"procaas, workers over HTTP", "{workers over HTTP: tasks of graphile-worker}"},
		},
	},
}

func inFlight(what, contestant, figure string) []string {
	return []string{what, fmt.Sprintf("{%s, 64 in flight: %s}", contestant, figure), fmt.Sprintf("{%s, 256 in flight: %s}", contestant, figure)}
}

func machine(cores int) []string {
	return []string{fmt.Sprint(cores), fmt.Sprintf("{%d cores: flows}", cores), fmt.Sprintf("{%d cores: log}", cores)}
}

func tasks(what, way string) []string {
	row := []string{what}
	for _, figure := range []string{"tasks", "tasks of the best by hand", "program and PostgreSQL", "log"} {
		row = append(row, fmt.Sprintf("{queue, %s: %s}", way, figure))
	}
	return row
}

func around(what, figure string) []string {
	return []string{what, fmt.Sprintf("{around, PostgreSQL: %s}", figure), fmt.Sprintf("{around, SQLite: %s}", figure)}
}

func cores(procs int) []string {
	row := []string{fmt.Sprint(procs)}
	for _, flight := range []int{64, 256} {
		for _, figure := range []string{"flows", "program"} {
			row = append(row, fmt.Sprintf("{GOMAXPROCS=%d, %d in flight: %s}", procs, flight, figure))
		}
	}
	return row
}

func servers(what, figure string) []string {
	row := []string{what}
	for _, n := range []int{1, 2, 4} {
		row = append(row, fmt.Sprintf("{inbox on %d PostgreSQL: %s}", n, figure))
	}
	return row
}

func moves(what, figure string) []string {
	return []string{what, fmt.Sprintf("{move of 1000 runs: %s}", figure), fmt.Sprintf("{move of 100000 runs: %s}", figure)}
}
