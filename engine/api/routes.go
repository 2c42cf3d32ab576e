package api

import (
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"procaas/engine"
)

// intakeOperations are the calls that bring events and tasks in.
func (s *server) intakeOperations() []operation {
	refusals := []string{codeIDConflict, codeEventRejected, codeUnknownEventType, codeMissingKey, codeInvalidEvent, codeInvalidPayload, codeBatchRefused, codeOverloaded, codeKeyMoving, codeCellAway, codeStoreUnavailable}
	receipts := []reply{
		{
			status: 202, about: "Accepted and durable. An array, or a batch, gives items in its order.",
			body: Receipt{}, or: Receipts{}, example: Receipt{Event: "e-1", Run: exampleRun}, headers: []string{"Location: the run of a single event"},
		},
		{status: 200, about: "The event had been accepted before; nothing has changed.", body: Receipt{}, example: Receipt{Event: "e-1", Run: exampleRun, Duplicate: true}},
		{status: 207, about: "Of an array, or a batch, some were accepted and some refused: each item tells.", body: Receipts{}},
	}
	return []operation{
		{
			method: http.MethodPost, path: "/v1/events", id: "submit-events", tag: "events",
			summary: "Submit events",
			about: "Takes the plain form, one or an array, and CloudEvents 1.0: structured, batched, or binary with the attributes in `ce-` headers. " +
				"Extensions of CloudEvents: `partitionkey` (or `subject`) is the key; `priority`, `delaytolerance` and `at` are as in the plain form; `traceparent` and `tracestate`, or the headers of these names, say which trace the event belongs to. " +
				"Data must be JSON.\n\n" +
				"A request that cannot be read is refused as a whole. Events that can be read are accepted or refused each for itself: " +
				"202 when none is refused, 207 when some are, 422 `batch_refused` when all are. " +
				"A repetition of `source` and `id` gives the first run again.",
			body: s.eventBody(), replies: receipts, refusals: refusals, serve: s.postEvents,
		},
		{
			method: http.MethodPost, path: "/v1/queues/{pipeline}/tasks", id: "put-tasks", tag: "events",
			summary: "Put tasks into a queue",
			about: "Tasks of a pipeline with a `queue` section, and of a type that is no pipeline, go into the queue of tasks, for workers. " +
				"Of any other pipeline, each task becomes an event of the first type that it serves, and replies are those of events. " +
				"A task of a type that no pipeline declares, and that no worker has asked for in a month, is taken in with a `warning`; " +
				"a server with `--strict-queues` refuses it.",
			params:  []*huma.Param{inPath("pipeline", "The type: a pipeline's id, or any other.")},
			body:    jsonBody(oneOrMany(s.schema(Task{})), map[string]any{"payload": map[string]any{"to": "u-7"}, "delay": "90s"}),
			replies: taskReceipts(receipts), refusals: append(refusals, codePipelineNotFound, codeInvalidParameter, codeInvalidTask, codeQueueDraining, codeUnknownTaskType), serve: s.postTasks,
		},
	}
}

// taskReceipts are the replies of events, and those of tasks besides.
func taskReceipts(events []reply) []reply {
	out := slices.Clone(events)
	out[0].more = []any{TaskReceipt{}, TaskReceipts{}}
	out[2].or = TaskReceipts{}
	return out
}

// exampleRun is the id of a run in examples: a UUID of version 7, as those of runs are.
const exampleRun = "0199d3f0-6f6e-7c7b-9d0a-6a3c1c2f4e11"

func (s *server) runOperations() []operation {
	id := []*huma.Param{inPath("id", "The run's id.")}
	steered := []string{codeRunNotFound, codeInvalidParameter, codeKeyMoving, codeCellAway, codeStoreUnavailable}
	one := []reply{{status: 200, about: "The run.", body: engine.RunView{}}}
	return []operation{
		{
			method: http.MethodGet, path: "/v1/runs", id: "list-runs", tag: "runs",
			summary: "List runs, newest first",
			about: "Items have neither the payloads of their events nor shared states, which `GET /v1/runs/{id}` gives. " +
				"A page may have fewer items than `limit` when the runs are large; `next` is the cursor of the rest.",
			params: []*huma.Param{
				inQuery("pipeline", "Only runs of this pipeline.", nil), inQuery("flow", "Only runs of this flow.", nil),
				inQuery("key", "Only runs of this key.", nil),
				inQuery("status", "Only runs with this status.", &huma.Schema{Type: huma.TypeString, Enum: anys(statuses)}),
				inQuery("handler", "Only runs that failed in this handler, or below this pipeline or pipeline/stage.", nil),
				inQuery("left_out", "Only runs that succeeded and went on without this handler, or one below this pipeline or pipeline/stage, though its conditions did not say so.", nil),
				inQuery("error_class", "Only runs that failed with an error of this class: timeout, connection, schema, a status such as 503, 4xx, 5xx, status or other; quarantined for runs that nodes have died of.", nil),
				inQuery("error", "Only runs whose error contains this text.", nil),
				inQuery("since", "Only runs accepted then or later.", &huma.Schema{Type: huma.TypeString, Format: "date-time"}),
				inQuery("until", "Only runs accepted before.", &huma.Schema{Type: huma.TypeString, Format: "date-time"}),
				inQuery("in_flight", "true: only runs that have begun and may still go on.", &huma.Schema{Type: huma.TypeBoolean}),
				inQuery("limit", "The most runs of one page.", limitSchema()),
				inQuery("cursor", "Where the page begins: next of the page before.", nil),
			},
			replies:  []reply{{status: 200, about: "A page of runs.", body: Page[engine.RunView]{}}},
			refusals: []string{codeInvalidParameter, codeStoreUnavailable}, serve: s.listRuns,
		},
		{
			method: http.MethodGet, path: "/v1/runs/{id}", id: "get-run", tag: "runs",
			summary: "Read a run", params: id, replies: one, refusals: steered, serve: s.getRun,
		},
		{
			method: http.MethodGet, path: "/v1/runs/{id}/explain", id: "explain-run", tag: "runs",
			summary: "Tell why a handler ran in a run, or did not",
			about: "What decided, and what every part of its conditions came to, from what is kept of the run. " +
				"What is not known any more is said, and never guessed.",
			params:   append(slices.Clone(id), inQuery("path", "The handler: pipeline/stage/handler, or the end of it. Inside of a call, caller>handler asks for that call; p/s[2]>p/s/h is one element of a repeated stage, from 0.", nil)),
			replies:  []reply{{status: 200, about: "Why.", body: engine.Explanation{}}},
			refusals: append(slices.Clone(steered), codeHandlerNotFound), serve: s.explainRun,
		},
		{
			method: http.MethodPost, path: "/v1/runs/{id}/retry", id: "retry-run", tag: "runs",
			summary: "Go on with a run that has failed, or waits for an operator, from the handler that did",
			params:  id, body: s.reasonBody(), replies: one, refusals: append(steered, codeRunNotFailed), serve: s.retryRun,
		},
		{
			method: http.MethodPost, path: "/v1/runs/{id}/cancel", id: "cancel-run", tag: "runs",
			summary: "End a run",
			about: "A run of a pipeline with compensations first lets its calls under way end, and undoes what it has done, the last first; " +
				"until then, cancelling tells why. Another one ends at once, or when its node has broken its calls off.",
			params: id, body: s.cancelBody(), replies: one, refusals: append(steered, codeRunFinished, codeRunUndoing), serve: s.cancelRun,
		},
		s.redriveOperation("retry", "Retry the failed runs that a filter chooses", s.retryRuns),
		s.redriveOperation("cancel", "Cancel the runs that a filter chooses", s.cancelRuns),
		s.makeUpOperation(),
		{
			method: http.MethodGet, path: "/v1/flows/{flow}/keys/{key}", id: "get-key", tag: "runs",
			summary:  "Read a key of a flow",
			about:    "A key that no event has reached is in its initial state. A slash in a key is sent as %2F.",
			params:   []*huma.Param{inPath("flow", "The flow's id."), inPath("key", "The entity.")},
			replies:  []reply{{status: 200, about: "The entity.", body: engine.EntityView{}}},
			refusals: []string{codeFlowNotFound, codeInvalidParameter, codeCellAway, codeStoreUnavailable}, serve: s.getEntity,
		},
	}
}

func (s *server) adminOperations() []operation {
	return []operation{
		{
			method: http.MethodGet, path: "/admin/v1/handlers", id: "list-handlers", tag: "admin",
			summary: "List handlers with what this node has seen of them",
			replies: []reply{{status: 200, about: "All handlers, in order.", body: Page[engine.HandlerInfo]{}}},
			serve:   s.listHandlers,
		},
		{
			method: http.MethodGet, path: "/admin/v1/services", id: "list-services", tag: "admin",
			summary: "List the services that handlers call, and what this node lets through to them",
			replies: []reply{{status: 200, about: "All services, in order.", body: Page[engine.ServiceInfo]{}}},
			serve:   s.listServices,
		},
		{
			method: http.MethodGet, path: "/admin/v1/backlog", id: "get-backlog", tag: "admin",
			summary: "Tell how many runs wait on all nodes, and for what",
			about:   "Counts are exact when they are made, and some seconds old: the more there is to count, the more seldom it is done.",
			replies: []reply{{status: 200, about: "What waits.", body: engine.BacklogView{}}},
			serve:   s.getBacklog,
		},
		{
			method: http.MethodGet, path: "/admin/v1/nodes", id: "list-nodes", tag: "admin",
			summary:  "List the nodes that are alive, and those that died lately",
			replies:  []reply{{status: 200, about: "The nodes.", body: Page[engine.NodeView]{}}},
			refusals: []string{codeStoreUnavailable}, serve: s.listNodes,
		},
		{
			method: http.MethodGet, path: "/admin/v1/audit", id: "list-audit", tag: "admin",
			summary: "List who changed what, newest first",
			params: []*huma.Param{
				inQuery("kind", "Only changes of this kind.", &huma.Schema{Type: huma.TypeString, Enum: anys(engine.AuditKinds())}),
				inQuery("name", "Only changes of this setting, token, run or service, or at or below this path.", nil),
				inQuery("by", "Only changes by this actor: the name of a token.", nil),
				inQuery("since", "Only changes made then or later.", &huma.Schema{Type: huma.TypeString, Format: "date-time"}),
				inQuery("until", "Only changes made before.", &huma.Schema{Type: huma.TypeString, Format: "date-time"}),
				inQuery("limit", "The most changes of one page.", limitSchema()),
				inQuery("cursor", "Where the page begins: next of the page before.", nil),
			},
			replies:  []reply{{status: 200, about: "A page of changes.", body: Page[engine.AuditView]{}}},
			refusals: []string{codeInvalidParameter, codeStoreUnavailable}, serve: s.listAudit,
		},
		{
			method: http.MethodGet, path: "/admin/v1/audit/verify", id: "verify-audit", tag: "admin",
			summary: "Tell whether the audit is as it was written",
			about: "Reads all records, oldest first. Each has a hash of what it says and of the hash before it, so a record that was changed, removed " +
				"or put in later does not fit. Who can write to the database can make the whole chain anew: keep `head` elsewhere, and ask with `expect` whether it is still there. " +
				"A node does this once at a time.",
			params:   []*huma.Param{inQuery("expect", "Hashes that the chain must hold, with commas between them: 64 hexadecimal digits each, such as an earlier head. At most 16.", nil)},
			replies:  []reply{{status: 200, about: "What was found.", body: engine.AuditReport{}}},
			refusals: []string{codeInvalidParameter, codeCellAway, codeStoreUnavailable}, serve: s.verifyAudit,
		},
		{
			method: http.MethodPost, path: "/admin/v1/reload", id: "reload", tag: "admin",
			summary:  "Read this node's pipelines again, and serve new events by them on all nodes",
			about:    "Pipelines with errors are refused with all findings, and so are files that have none while the server has some; neither changes anything. Pipelines that are gone while accepted events wait for them are refused, too, with their number, unless `drop` gives the events up. Runs that have begun keep the definition that they began with.",
			body:     s.reloadBody(),
			replies:  []reply{{status: 200, about: "What it changes.", body: engine.Diff{}}},
			refusals: []string{codeInvalidPipelines, codeEventsWait, codeNotReloadable, codeStoreUnavailable}, serve: s.reloadPipelines,
		},
		{
			method: http.MethodGet, path: "/admin/v1/configs", id: "list-configs", tag: "admin",
			summary:  "List live settings",
			replies:  []reply{{status: 200, about: "All settings, by name.", body: Page[engine.ConfigView]{}}},
			refusals: []string{codeStoreUnavailable}, serve: s.listConfigs,
		},
		{
			method: http.MethodPut, path: "/admin/v1/configs/{name}", id: "set-config", tag: "admin",
			summary: "Change a live setting on all nodes",
			about:   "`If-Match` with the revision of the setting guards against lost updates; `If-None-Match: *` changes only a setting that was never changed.",
			params: []*huma.Param{
				inPath("name", "The setting."),
				inHeader("If-Match", `The revision that may be replaced, in quotes.`),
				inHeader("If-None-Match", "* to change only a setting that was never changed."),
			},
			body:     jsonBody(s.schema(ConfigChange{}), ConfigChange{Value: map[string]any{"enabled": false}, Reason: "push service is down"}),
			replies:  []reply{{status: 200, about: "The setting.", body: engine.ConfigView{}, headers: []string{"ETag: the revision, in quotes"}}},
			refusals: []string{codeInvalidParameter, codeUnknownConfig, codeInvalidConfig, codeConfigChanged, codeStoreUnavailable}, serve: s.putConfig,
		},
	}
}

// redriveOperation is a call that does something to many runs.
func (s *server) redriveOperation(verb, summary string, serve func(http.ResponseWriter, *http.Request) error) operation {
	return operation{
		method: http.MethodPost, path: "/v1/runs/" + verb, id: verb + "-runs", tag: "runs", summary: summary,
		about: "Takes the runs in the order of acceptance, `limit` in one call; `cursor` goes on where the call before ended. " +
			"A walk by cursor meets each run once, and may be repeated from the beginning. At least one condition must be given.",
		body: jsonBody(s.schema(Redrive{}), Redrive{Handler: "new-order-created/notify", ErrorClass: "5xx", Preview: true}),
		replies: []reply{{
			status: 200, about: "What was done, or with `preview` what would be.", body: engine.RunsDone{}, or: engine.RunsPreview{},
		}},
		refusals: []string{codeStoreUnavailable}, serve: serve,
	}
}

func (s *server) makeUpOperation() operation {
	o := s.redriveOperation("make-up", "Let runs that left a handler out do it after all", s.makeUpRuns)
	o.about = "The runs have succeeded and went on without `handler`: it was switched off or out of the flow, over its limit, had waited for too long, or had failed. " +
		"Each makes that call alone, with the `Idempotency-Key` that it would have had, or had. Its conditions are asked again; what it leaves goes to the run, and not to the key. " +
		"A run whose handler is inside of a call or a repeated stage, is repeated for a list, or awaits an event cannot; it counts as `moved_on`.\n\n" + o.about
	o.body = jsonBody(s.schema(Redrive{}), Redrive{Handler: "new-order-created/notify/user", Since: "2026-11-21T12:00:00Z", Preview: true})
	return o
}

func (s *server) statusOperations() []operation {
	health := func(about string) []reply { return []reply{{status: 200, about: about, body: Health{}}} }
	return []operation{
		{
			method: http.MethodGet, path: "/healthz", id: "health", tag: "status", summary: "Whether the process is alive",
			replies: health("It is."), serve: s.getHealth,
		},
		{
			method: http.MethodGet, path: "/readyz", id: "ready", tag: "status", summary: "Whether the node takes events and runs them",
			replies: health("It does."), refusals: []string{codeNotReady}, serve: s.getReady,
		},
		{
			method: http.MethodGet, path: "/metrics", id: "metrics", tag: "status", summary: "Metrics in the text format of Prometheus",
			replies: []reply{{status: 200, about: "The metrics.", contentType: "text/plain"}}, serve: s.metricsHandler(),
		},
		{
			method: http.MethodGet, path: "/openapi.json", id: "describe", tag: "status", summary: "This description",
			replies: []reply{{status: 200, about: "An OpenAPI 3.1 document.", body: map[string]any{}}}, serve: s.getDescription,
		},
		{
			method: http.MethodGet, path: "/", id: "page", tag: "status", summary: "The console, for people",
			replies: []reply{{status: 200, about: "The overview. Who has not signed in and needs to is sent to the page for that.", contentType: "text/html"}}, serve: s.serveConsole,
		},
	}
}

// eventBody describes the forms of events.
// eventBody describes all forms in which events come but the binary one, whose attributes are
// headers.
func (s *server) eventBody() *huma.RequestBody {
	cloud := s.cloudEventSchema()
	plain := Event{Type: "new-order-created", ID: "e-1", Source: "orders", Payload: map[string]any{"order-id": "o-42"}}
	structured := map[string]any{
		"specversion": "1.0", "type": "new-order-created", "id": "e-1", "source": "/orders", "partitionkey": "o-42",
		"datacontenttype": mediaJSON, "data": map[string]any{"order-id": "o-42"},
	}
	return &huma.RequestBody{
		Required: true,
		Content: map[string]*huma.MediaType{
			mediaJSON:       {Schema: oneOrMany(s.schema(Event{})), Example: plain},
			mediaCloudEvent: {Schema: cloud, Example: structured},
			mediaCloudBatch: {Schema: &huma.Schema{Type: huma.TypeArray, Items: cloud}, Example: []any{structured}},
		},
	}
}

// cloudEventSchema describes a CloudEvent by hand: no Go type of ours has its shape.
func (s *server) cloudEventSchema() *huma.Schema {
	text := func(about string) *huma.Schema { return &huma.Schema{Type: huma.TypeString, Description: about} }
	moment := func(about string) *huma.Schema {
		return &huma.Schema{Type: huma.TypeString, Format: "date-time", Description: about}
	}
	s.doc.Components.Schemas.Map()["CloudEvent"] = &huma.Schema{
		Type: huma.TypeObject, Description: "A CloudEvent of version 1.0. Further extensions are allowed and ignored.",
		Required: []string{"specversion", "id", "source", "type"}, AdditionalProperties: true,
		Properties: map[string]*huma.Schema{
			"specversion": {Type: huma.TypeString, Enum: []any{"1.0"}},
			"id":          text("Unique within source."), "source": text("Who sends it."), "type": text("Which pipelines it may activate."),
			"time": moment("When it happened."), "subject": text("The key, when partitionkey is left out."),
			"datacontenttype": text("A type of JSON."), "dataschema": text("Ignored."),
			"data": {Description: "The payload: any JSON value."}, "data_base64": text("The payload: JSON in base64."),
			"partitionkey": text("The key of the entity."), "traceparent": text("W3C trace context."), "tracestate": text("W3C trace context."),
			"priority":       {Type: huma.TypeInteger, Format: "int32", Description: "Higher goes first."},
			"delaytolerance": durationSchema("How long the event may wait beyond its time."), "at": moment("When the event is due."),
		},
	}
	return &huma.Schema{Ref: "#/components/schemas/CloudEvent"}
}

func (s *server) reasonBody() *huma.RequestBody {
	b := jsonBody(s.schema(Reason{}), Reason{Reason: "wrong city"})
	b.Required = false
	return b
}

func (s *server) reloadBody() *huma.RequestBody {
	b := jsonBody(s.schema(Reload{}), Reload{Reason: "new tariffs"})
	b.Required = false
	return b
}

func (s *server) cancelBody() *huma.RequestBody {
	b := jsonBody(s.schema(Cancellation{}), Cancellation{Reason: "wrong city"})
	b.Required = false
	return b
}

func jsonBody(schema *huma.Schema, example any) *huma.RequestBody {
	return &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{mediaJSON: {Schema: schema, Example: example}}}
}

// oneOrMany describes a body that is one object, or an array of at most [maxEvents].
func oneOrMany(one *huma.Schema) *huma.Schema {
	many := maxEvents
	return &huma.Schema{OneOf: []*huma.Schema{one, {Type: huma.TypeArray, Items: one, MaxItems: &many}}}
}

func limitSchema() *huma.Schema {
	low, high := 1.0, float64(maxLimit)
	return &huma.Schema{Type: huma.TypeInteger, Minimum: &low, Maximum: &high, Default: defaultLimit}
}

func inPath(name, about string) *huma.Param {
	return &huma.Param{Name: name, In: "path", Required: true, Description: about, Schema: &huma.Schema{Type: huma.TypeString}}
}

func inHeader(name, about string) *huma.Param {
	return &huma.Param{Name: name, In: "header", Description: about, Schema: &huma.Schema{Type: huma.TypeString}}
}

func inQuery(name, about string, schema *huma.Schema) *huma.Param {
	if schema == nil {
		schema = &huma.Schema{Type: huma.TypeString}
	}
	return &huma.Param{Name: name, In: "query", Description: about, Schema: schema}
}
