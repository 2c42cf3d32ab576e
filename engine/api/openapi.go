package api

import (
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"procaas/engine/api/intake"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
)

// newDocument makes a description without operations. It has the version of the API, not of the
// program.
func newDocument(groups []Group) *rest.Document {
	tags := []*huma.Tag{
		{Name: "events", Description: "Submit events. Accepted events are durable."},
		{Name: "runs", Description: "Follow and control the runs of events."},
	}
	core := len(tags)
	for _, g := range groups {
		at := slices.IndexFunc(tags[core:], func(t *huma.Tag) bool { return t.Name == g.Before })
		if at < 0 {
			at = len(tags) - core
		}
		tags = slices.Insert(tags, core+at, &huma.Tag{Name: g.Tag, Description: g.About})
	}
	tags = append(tags,
		&huma.Tag{Name: "admin", Description: "Operate the server."},
		&huma.Tag{Name: "status", Description: "Health, metrics, this description, and the console."},
	)
	return rest.NewDocument(&huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title:   "procaas",
			Version: "1.0.0",
			Description: "Submit events, and look after the durable runs that they start. Errors are RFC 9457 problems with a stable `code`: " +
				"an unknown path is `" + problem.UnknownPath + "`, an unknown method `" + problem.UnknownMethod + "`. " +
				"Lists have pages with a cursor. Times are in RFC 3339.",
			License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		Servers: []*huma.Server{{URL: "/", Description: "The server of this description."}},
		Tags:    tags,
		Components: &huma.Components{
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"token": {Type: "http", Scheme: "bearer", Description: "A token from `POST /admin/v1/tokens`, or the admin token of the " +
					"server's configuration. As long as there is none, no call needs one. Each call names the role that it needs: viewer, " +
					"submitter, worker, operator or admin. An operator also has the roles viewer, submitter and worker. An admin has all roles. " +
					"A token may be bound to paths: `pipeline`, `pipeline/stage`, `pipeline/stage/handler`."},
			},
		},
	})
}

// describeFields adds to the schemas what the engine's types lack.
func describeFields(doc *rest.Document) {
	schemas := doc.Components.Schemas.Map()
	schemas["CloudEvent"] = intake.CloudEvent()
	schemas["RunView"].Properties["status"].Enum = []any{"waiting", "running", "parked", "succeeded", "failed", "cancelled", "ignored"}
	schemas["HandlerView"].Properties["outcome"].Enum = []any{"succeeded", "failed", "skipped", "running", "waiting", "unknown"}
	for name, fields := range describedFields {
		for field, about := range fields {
			schemas[name].Properties[field].Description = about
		}
	}
}

// describedFields documents the fields of the engine's own types.
var describedFields = map[string]map[string]string{
	"RunView": {
		"shared_state":   "The shared state so far, including that of the flow.",
		"handlers":       "The outcome of each handler, in the order of the pipeline.",
		"bundle":         "The hash of the definition that the run began with.",
		"generation":     "How often an operator has retried the run.",
		"blocked":        "true if the run waits for an earlier run of its key.",
		"blocks":         "true if later runs of the key wait until somebody retries or cancels this one. Absent otherwise.",
		"accepted":       "When the event was stored.",
		"due":            "When a parked or scheduled run continues.",
		"failed_handler": "The path of the handler that failed the run.",
		"error_class": "The class of the error that failed the run: timeout, deadline, connection, schema, a status such as 503, or other. " +
			"quarantined: it is parked because nodes died of it. damaged: its data in the store cannot be read.",
		"stage":  "The number of its current stage, from 1; 0 before it begins.",
		"reason": "The reason why the run was ignored or cancelled.",
	},
	"HandlerView": {
		"path":   "pipeline/stage/handler.",
		"due":    "When a waiting handler continues; absent if unknown.",
		"reason": "The reason why the handler was skipped, or what it waits for.",
	},
	"EntityView": {
		"state":   "The state of the automaton; empty if the flow has none.",
		"blocked": "true if later events of the key wait until somebody retries or cancels a run, which blocked_by names.",
		"waiting": "The number of unfinished runs.",
		"runs":    "The latest runs, newest first.",
	},
	"HandlerInfo": {
		"owner":            "The owner of the handler, or else of its pipeline.",
		"calls":            "Attempts that ended in the last minute, on this node.",
		"calls_per_second": "The rate of these attempts.",
		"in_flight":        "Calls in flight on this node.",
		"waiting":          "Runs in the memory of this node that wait for a limit or a switch before they call the handler.",
		"last_success":     "When an attempt last succeeded on this node; null for never.",
		"last_failure":     "When an attempt last failed on this node; null for never.",
		"fallback":         "The state of the fallback; absent without one.",
		"switch":           "on, off or hold: the effect of the controls of the handler, its stage and its pipeline.",
		"rate_limit":       "The lowest rate that applies.",
		"effective":        "The restrictions of the handler, the strongest first, each with its author, end and reason.",
		"success_ratio":    "The share of calls that succeeded in the last minute; null without calls.",
		"recent_calls":     "Attempts that ended in the last ten seconds, on this node.",
		"recent_ratio":     "The share of recent_calls that succeeded; null without calls.",
		"left_out":         "Runs of this node that left the handler out in the last 10 seconds, because its service was not available for too long.",
		"parked":           "Runs of all nodes that are parked before the handler, at the last count.",
	},
	"Recorded": {
		"state":     "The state of the automaton as the run began; empty if the flow has none.",
		"recording": "What the run depended on, apart from its event and its version.",
	},
	"RunRecording": {
		"configs": "The live settings as the run began.",
		"found":   "The shared state of its key as the run began.",
		"calls":   "How each call ended, in that order.",
		"events":  "The events that the run awaited, as they came.",
		"size":    "The size of all that in bytes.",
		"lost":    "Why nothing of that is there; absent otherwise.",
	},
	"RecordedCall": {
		"ref":       "The path of the handler. The calls that it is inside of stand before it, and the index of its item behind it.",
		"attempt":   "The number of the attempt, from 1.",
		"verify":    "true if the call asked what became of the attempt.",
		"took_ns":   "How long it took, in nanoseconds.",
		"response":  "What the handler made of the reply; of an error the body.",
		"status":    "The HTTP status; absent without one.",
		"error":     "Why it failed; absent if it succeeded.",
		"class":     "The class of the error.",
		"permanent": "true if the error excludes a retry.",
		"after_ns":  "How long the service asked to wait before a retry, in nanoseconds.",
		"probe":     "true if the call only tried whether the service was back.",
	},
	"RecordedEvent": {
		"after_ns": "When it came, in nanoseconds since the run began.",
	},
	"FallbackView": {
		"state": "in: the handler is in the flow. out: it is out of the flow until a time. probing: one call per second tries whether " +
			"it works again. ramping: the share of calls grows. capped: it fails, but too many other handlers are out. frozen: half of all " +
			"services fail at once, so no handler goes out.",
		"service": "The service, if it is out as a whole with all its handlers that have a fallback.",
		"since":   "When the handler left the flow.",
		"until":   "The end of out or ramping; null if unknown.",
		"ratio":   "The share of successful calls when the handler left the flow.",
		"trips":   "How often it went out in a row. Each time doubles the time out.",
	},
	"ServiceInfo": {
		"adaptive":  "true if the node finds out by itself how many calls the service can handle.",
		"limit":     "The highest number of calls in flight on this node; null for no limit.",
		"in_flight": "Calls of this node in flight.",
		"waiting":   "Runs of this node that queue for a call. More may wait in the store.",
		"down": "true if hardly any call succeeds. One call at a time tries whether the service is back, and does not count as " +
			"an attempt.",
		"closed_until": "The service is paused until then, as its Retry-After asked for; null if it is not.",
		"calls":        "Calls of this node that started in the last 10 seconds.",
		"repeats":      "The number of retries among calls.",

		"success_ratio": "The share of successful calls of this node in the last 10 seconds; null without calls.",
		"failing_since": "Since when hardly any call of this node has succeeded, or the service is paused; null while it answers.",
		"last_error":    "The error of the last failed call of this node.",
		"critical":      "true if a critical handler calls it.",
		"parked":        "Runs of all nodes that are parked until the service is available, at the last count.",
		"parked_since":  "Since when the first of them is parked; null without one.",
	},
	"BacklogView": {
		"counted":        "When the node counted; null before the first time.",
		"waiting":        "The runs that wait for their turn, their time or a node.",
		"oldest_seconds": "How long the oldest due run has waited.",
		"parked":         "The parked runs by cause, the largest group first.",
		"refused":        "What this node refused in the last minute, because the quota of a token was used up.",
	},
	"DurationView": {
		"path": "pipeline, or pipeline/stage.",
		"from_acceptance": "From the acceptance of the event to the end of the run, or of the stage. Of an event with a time, from that " +
			"time.",
		"from_begin": "From the begin of the run to its end. Of a stage, from the end of the stage before it.",
	},
	"Span": {
		"ended":  "How many succeeded.",
		"p50_ms": "The median in milliseconds; null without any. It may be off by a sixth.",
		"p99_ms": "The 99th percentile in milliseconds; null without any. It may be off by a sixth.",
	},
	"Spans": {
		"hour_before": "The hour before the last one, to compare with.",
	},
	"ParkedRuns": {
		"reason": "service: the service fails or is at its limit. hold: an operator holds them. lifted: a hold ended, and they resume " +
			"as fast as services can handle. limit: a rate limit or a limit of calls. retry: the next attempt. time: a wait. event: an " +
			"event. state: another state of the key. operator: a decision. blocking: they failed, and later runs of the key wait. failed: " +
			"they failed, and no run waits for them.",
		"for":            "The service, the path of the control or the path of the handler; absent for other reasons.",
		"since":          "Since when the first of them has waited.",
		"oldest_seconds": "How long it has waited.",
	},
	"ControlView": {
		"enabled":         "false means that the switch is off.",
		"mode":            "The meaning of off: skip or hold. With the switch on: keep, if fallbacks must not take handlers out.",
		"force":           "true if the control also applies to critical handlers.",
		"until":           "When the switch ends; null is never.",
		"rate_limit":      "The highest rate of all calls below the path, on all nodes together.",
		"over":            "What a call over the limit does: wait or skip.",
		"limit_until":     "When the limit ends; null is never.",
		"rollout_percent": "The percentage of runs that include the handler.",
		"setters":         "Who set each part, and why: switch, limit and rollout. by and reason are those of the last change.",
		"revision":        "The revision of the control, which grows with every change. Undo takes it.",
		"expired":         "true if no part of the control is in effect any longer.",
		"known":           "true if the present definition has the path.",
	},
	"ControlEffect": {
		"calls_per_second": "The rate in the last minute, on this node.",
		"waiting_runs":     "Runs of the pipeline that wait.",
		"running_runs":     "Runs of the pipeline that nodes work on.",
		"parked_runs":      "Runs of the pipeline that are parked.",
	},
	"HandlerEffect": {
		"calls_per_second": "The rate in the last minute, on this node.",
		"read_by":          "Handlers of the pipeline that read what this one writes.",
	},
	"NodeView": {
		"node":   "Its number. Each start of a process gets a higher one.",
		"seen":   "When it last renewed its lease.",
		"runs":   "The number of runs that it works on.",
		"bundle": "The hash of the definition for new events; empty before its first heartbeat.",
		"memory": "How much of its memory it uses. Only of the node that answers; absent for others, and without a limit.",
	},
	"MemoryView": {
		"limit":   "Bytes that the process may use.",
		"budget":  "Bytes of the limit that runs, replies, requests and pages of the console share.",
		"used":    "Bytes of the budget in use.",
		"waiting": "How many runs, replies and requests wait for memory.",
	},
	"Version": {
		"version": "The hash of its files.",
		"state":   "current: new events use it. canary 5%: new events of this share of the keys use it. shadow 5%: nodes replay this share of the ended runs with it. rolled back: a canary or shadow ended so. Absent for others.",
		"since":   "When it last became current, from the audit; otherwise when it was stored.",
		"by":      "The actor who made it current.",
		"before":  "The version that it replaced then.",
		"changes": "The first difference to that version, and how many more there are.",
		"runs":    "The unfinished and failed runs that began with it.",
		"shadow":  "What replays with it have found; absent if it is not in the shadow.",
	},
	"VersionDetail": {
		"diff":  "The differences to the version that it replaced.",
		"files": "Its files.",
	},
	"CanaryView": {
		"phase":     "none, running, shadow, promoted, rolled back, or superseded: another version became current meanwhile.",
		"old":       "The current version.",
		"new":       "The version that is tried.",
		"percent":   "The share of keys whose new runs use the new version. In the shadow: the share of ended runs that nodes replay.",
		"next":      "The next share; absent if the share is held.",
		"not_until": "When the next share begins at the earliest.",
		"runs":      "The runs of the new version that the server compared at this share.",
		"least":     "How many must have been compared before the next share.",
		"why":       "Why it ended.",
		"compared":  "The numbers of both versions at this share.",
		"shadow":    "What replays with the new version have found; absent for a canary.",
	},
	"Shadowed": {
		"pipelines":   "The counts by pipeline. With more than 200, the rest counts as others.",
		"differences": "The differences, the most frequent first; at most 30. At most 8 of each run count.",
		"other":       "The number of other differences.",
		"skipped":     "The reasons why runs were not compared, the most frequent first. With more than 10, the rest counts as others.",
		"calls":       "The calls that replays have made for real.",
	},
	"Replays": {
		"same":      "The runs without a difference.",
		"different": "The runs with a difference.",
		"skipped":   "The runs that were not compared.",
	},
	"ShadowDifference": {
		"kind":     "route, unknown, call added, call removed, service, request, attempts, outcome, event, status, result or slower.",
		"path":     "The handler, or the pipeline if it is about the run.",
		"at":       "The part of the request or result; empty for the whole.",
		"what":     "The difference in words.",
		"was":      "The value in the first of the runs.",
		"now":      "The value in its replay.",
		"runs":     "How many runs have it.",
		"first":    "In how many of them it is the first. In the others, it may only follow from another difference.",
		"examples": "The ids of some of them.",
	},
	"Skip": {"why": "The reason.", "runs": "The number of runs."},
	"Compared": {
		"kind": "failures: of runs. errors: of the first attempts of a handler. latency: of runs, in milliseconds. calls: of a run.",
		"name": "The pipeline, or the path of the handler.",
		"old":  "The numbers of the current version.",
		"new":  "The numbers of the version that is tried.",
	},
	"Numbers": {
		"n":   "The number of runs or attempts.",
		"bad": "How many of them failed.",
		"p50": "The median of latency or calls.",
		"p90": "The 90th percentile.",
	},
	"VersionFile": {"name": "The path of the file when it was read.", "text": "Its contents."},
	"TokenView": {
		"name":    "The name of the bearer in the audit.",
		"role":    "viewer, submitter, worker, operator or admin.",
		"paths":   "The paths that it is bound to; empty for everything.",
		"sources": "The sources of the events that it may submit, each with what is below it; absent for all that no token is bound to.",
		"expires": "When it expires; null is never.",
		"revoked": "true if it was revoked.",
		"state":   "active, expired or revoked.",
		"changed": "When it was made or revoked.",
		"by":      "The actor who made or revoked it.",
	},
	"AuditView": {
		"revision": "The revision of the settings after the change.",
		"kind": "config: a live setting; control: a switch, limit or rollout; definition: the hashes of the pipelines of all nodes; " +
			"fallback: a handler or service that left the flow or came back; run: a retry, a cancellation or a move to another definition; " +
			"token: a token that was made or revoked.",
		"name":   "The setting, service or token, the path of the control or handler, or the id of the run.",
		"before": "The value before; null if there was none.",
		"hash":   "The SHA-256 of the record and of the hash before it. Empty for records from before the chain began.",
	},
	"AuditReport": {
		"whole":   "true if nobody changed, removed or inserted a record, and all expected hashes exist.",
		"chains":  "One chain for each database of the inbox.",
		"missing": "Expected hashes that no chain has. Somebody recomputed the chain, or the records were deleted by age.",
	},
	"AuditChain": {
		"cell":    "The database of the inbox; absent if there is only one.",
		"records": "The number of records that fit, up to the first that does not.",
		"older":   "The number of records without a hash, from before the chain began. They cannot be verified.",
		"trimmed": "The revision of the last record that was deleted by age; 0 for none.",
		"retention": "How old records had to be to be deleted, such as 9600h0m0s: the shortest such time that a record of the kind trim names. " +
			"Absent without one.",
		"last":  "The revision of the last record that fits.",
		"head":  "The hash of the last record: keep it elsewhere. Empty before the first record.",
		"holds": "Which of the expected hashes are there.",
		"break": "The first record that does not fit; absent if all fit.",
	},
	"AuditBreak": {
		"revision": "The revision of the record.",
		"changed":  "The time in the record; absent if there is no record.",
		"found":    "The value that was found.",
		"want":     "The expected value.",
	},
	"Diff": {
		"old":     "The hash of the definition before.",
		"new":     "The hash of the definition for new events.",
		"changes": "The differences; empty if there are none.",
	},
	"Difference": {
		"what":   "flow, pipeline, stage, handler, order, state, service, config or trigger.",
		"name":   "An id or a path.",
		"change": "added, removed, changed or moved.",
	},
	"RunFit": {
		"bundle": "The hash of the present definition of the run.",
		"why":    "The reason why it is pinned; absent if it is not.",
	},
	"RunsMoved": {
		"bundle":   "The hash of the present definition.",
		"done":     "The number of runs that moved, or would move. Runs that a node works on move after their calls in flight.",
		"fit":      "These runs, as they were before.",
		"pinned":   "Runs that do not fit. They stay as they are.",
		"moved_on": "The number of runs that ended meanwhile.",
		"next":     "The cursor of the rest; null at the end.",
	},
	"RunsDone": {
		"done":     "The number of runs that were changed.",
		"moved_on": "The number of runs that could not be changed, for example because they changed meanwhile.",
		"of_tasks": "The number of failed runs that are attempts of tasks. Only the queue retries these.",
		"next":     "The cursor of the rest; null at the end.",
	},
	"RunsPreview": {
		"groups": "The number of runs by pipeline, handler and class of error.",
		"runs":   "The ten oldest runs.",
	},
	"ConfigView": {
		"default":  "The value in the files; null if they do not declare the setting.",
		"revision": "Grows with every change. 0 if nobody has changed the setting at run time.",
	},
}
