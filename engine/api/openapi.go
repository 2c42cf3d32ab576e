package api

import (
	"github.com/danielgtaylor/huma/v2"

	"procaas/engine/api/intake"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
)

// newDocument makes a description without operations. Its version is that of
// the API, not that of the program.
func newDocument() *rest.Document {
	return rest.NewDocument(&huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title:   "procaas",
			Version: "1.0.0",
			Description: "Events in, durable runs of pipelines out. Errors are RFC 9457 problems with a stable `code`: " +
				"a path that no operation has is `" + problem.UnknownPath + "`, a method that it has not `" + problem.UnknownMethod + "`. " +
				"Lists are pages with a cursor; times are RFC 3339.",
			License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		Servers: []*huma.Server{{URL: "/", Description: "Where this description was read."}},
		Tags: []*huma.Tag{
			{Name: "events", Description: "Events in: accepted means durable."},
			{Name: "runs", Description: "What became of events."},
			{Name: "queues", Description: "Tasks for workers that are other programs."},
			{Name: "clusters", Description: "Which worker serves what."},
			{Name: "shards", Description: "Where the data of keys lives."},
			{Name: "admin", Description: "Calls of operators."},
			{Name: "status", Description: "Health, metrics, this description and a page for people."},
		},
		Components: &huma.Components{
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"token": {Type: "http", Scheme: "bearer", Description: "A token that was made by `POST /admin/v1/tokens`, or the one that the " +
					"server was configured with, which is an admin's. " +
					"Until there is any, no call needs one. The role that a call needs is named with it: viewer, submitter, worker, operator or admin. " +
					"An operator has the roles of viewers, submitters and workers, too, an admin has all. A token may be bound to paths: `pipeline`, " +
					"`pipeline/stage`, `pipeline/stage/handler`."},
			},
		},
	})
}

// describeFields says of the schemas what the engine's own types do not.
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
		"shared_state":   "The state that handlers have filled so far, the flow's included.",
		"handlers":       "What became of each handler, in the order of the pipeline.",
		"bundle":         "The hash of the definition that the run began with.",
		"generation":     "How often an operator has retried the run.",
		"blocked":        "The run waits for an earlier run of its key.",
		"accepted":       "When the event was stored.",
		"due":            "When a parked or scheduled run goes on.",
		"failed_handler": "The path of the handler that failed the run.",
		"error_class": "What kind of error failed the run: timeout, connection, schema, a status such as 503, or other; quarantined of " +
			"one that is parked since nodes have died of it.",
		"stage":  "The number of the stage that it is in, from 1; 0 before it begins.",
		"reason": "Why the run was ignored or cancelled.",
	},
	"HandlerView": {
		"path":   "pipeline/stage/handler.",
		"due":    "When one that waits is called again, or its wait is over; absent when that is not known.",
		"reason": "Why the handler was skipped, or what it waits for.",
	},
	"EntityView": {
		"state":   "The state of the automaton; empty for a flow without one.",
		"blocked": "A failed run holds the later events of the key back.",
		"waiting": "How many runs have not ended.",
		"runs":    "The latest runs, newest first.",
	},
	"HandlerInfo": {
		"owner":            "Of the handler, or else of its pipeline.",
		"calls":            "Attempts that ended in the last minute, on this node.",
		"calls_per_second": "The rate of these attempts.",
		"in_flight":        "Calls under way on this node.",
		"waiting":          "Runs in this node's memory that may not call the handler yet: a limit or a switch holds them.",
		"last_success":     "When an attempt last succeeded on this node; null when none has.",
		"last_failure":     "When an attempt last failed on this node; null when none has.",
		"fallback":         "Where a handler with a fallback stands; absent for others.",
		"switch":           "on, off or hold, as the controls of the handler, its stage and its pipeline have it.",
		"rate_limit":       "The lowest rate that applies.",
		"effective":        "What keeps the handler from running freely, in the order in which it counts, with who, until when and why.",
		"success_ratio":    "Of the last minute; null without calls.",
		"recent_calls":     "Attempts that ended in the last ten seconds, on this node.",
		"recent_ratio":     "How many of them succeeded; null without one. A minute shows an outage late.",
		"left_out": "Runs of this node that went on without the handler in the last ten seconds, since it had to wait for its " +
			"service for too long.",
		"parked": "Runs of all nodes that are parked before the handler, as they were counted last.",
	},
	"FallbackView": {
		"state": "in: the handler is in the flow. out: of it, until a time. probing: one call a second tries whether it works again. " +
			"ramping: more and more calls are made. capped: it fails, but too many others are out. frozen: nothing goes out, since half of all " +
			"services fail at once.",
		"service": "The service that is out as a whole, with all its handlers that have a fallback.",
		"since":   "When the handler left the state in.",
		"until":   "The end of out or ramping; null when nobody knows it.",
		"ratio":   "How many of the calls succeeded that sent the handler out.",
		"trips":   "How often it went out in a row; each time doubles how long it is out.",
	},
	"ServiceInfo": {
		"adaptive":     "The node finds out by itself how many calls the service bears.",
		"limit":        "How many calls this node lets be under way at once; null for no bound.",
		"in_flight":    "Calls that this node has under way.",
		"waiting":      "Runs of this node that stand in line to call the service. More may wait in the store.",
		"down":         "Hardly any call succeeds: one at a time finds out when the service is back, and does not count as an attempt.",
		"closed_until": "The service has asked for a pause by Retry-After, and gets no calls until then; null when it has not.",
		"calls":        "Calls of this node that started in the last ten seconds.",
		"repeats":      "How many of them were repetitions.",

		"success_ratio": "Of the calls of this node that ended in the last ten seconds; null without one.",
		"failing_since": "Since when hardly any call of this node has succeeded, or the service has wanted none; null while it answers.",
		"last_error":    "Of the last call that failed on this node.",
		"critical":      "A handler calls it without which its runs cannot succeed.",
		"parked":        "Runs of all nodes that are parked until the service can be called, as they were counted last.",
		"parked_since":  "Since when the first of them is; null without one.",
	},
	"BacklogView": {
		"counted":        "When this was counted; null before the first time.",
		"waiting":        "Runs that wait for their turn, their time or a node.",
		"oldest_seconds": "For how long the oldest of them that is due has waited.",
		"parked":         "The runs that stand still, those first that are most.",
	},
	"ParkedRuns": {
		"reason": "service: calls of a service fail, or it has as many under way as it bears. hold: an operator holds them. lifted: " +
			"what held them is lifted, and they go on as fast as services let them. limit: a rate limit, or a bound of calls. retry: the next " +
			"attempt. time: a wait. event: an event. state: another state of the key. operator: a decision. blocking: failed, and the later " +
			"runs of the key wait. failed: failed, and nobody waits.",
		"for":            "The service, the path of the control, or that of the handler; absent for other reasons.",
		"since":          "Since when the first of them waits for that.",
		"oldest_seconds": "For how long it has.",
	},
	"ControlView": {
		"enabled":         "false: the switch is off.",
		"mode":            "What off means: skip or hold. While the switch is on: keep, when no handler goes out of the flow by itself.",
		"force":           "Critical handlers are left out, too.",
		"until":           "When the switch goes on by itself; null is never.",
		"rate_limit":      "A bound of all calls below the path, on all nodes together.",
		"over":            "What becomes of a call over the limit: wait or skip.",
		"limit_until":     "When the limit ends by itself; null is never.",
		"rollout_percent": "The share of runs in which the handler runs.",
		"revision":        "Of the control; grows with every change. Undo takes it.",
		"expired":         "Nothing of it holds any more.",
		"known":           "The present definition has the path.",
	},
	"ControlEffect": {
		"calls_per_second": "Of the last minute, on this node.",
		"waiting_runs":     "Runs of the pipeline that wait.",
		"running_runs":     "Runs of the pipeline that nodes work on.",
		"parked_runs":      "Runs of the pipeline that are parked.",
	},
	"HandlerEffect": {
		"calls_per_second": "Of the last minute, on this node.",
		"read_by":          "Handlers of the pipeline that read what this one writes.",
	},
	"NodeView": {
		"node":   "Its number, which only grows: each start of a process has a new one.",
		"seen":   "When it renewed its lease last.",
		"runs":   "How many runs it works on.",
		"bundle": "The hash of the definition by which it serves new events; empty before its first beat.",
	},
	"TokenView": {
		"name":    "What the audit calls the bearer.",
		"role":    "viewer, submitter, worker, operator or admin.",
		"paths":   "What it is bound to; everything when there are none.",
		"expires": "When it is good no more; null is never.",
		"revoked": "It was made worthless.",
		"state":   "active, expired or revoked.",
		"changed": "When it was made or revoked.",
		"by":      "Who made or revoked it.",
	},
	"AuditView": {
		"revision": "Of the settings, after the change.",
		"kind": "config: a live setting; control: a switch, limit or rollout; definition: the pipelines of all nodes, told by their hashes; " +
			"fallback: a handler or service that went out of the flow or came back; run: one that was retried, cancelled or moved to another " +
			"definition; token: one that was made or revoked.",
		"name":   "The setting, service or token, the path of the control or handler, or the id of the run.",
		"before": "null when there was nothing.",
		"hash":   "SHA-256 of the record and of the hash of the one before it; empty for one from before records were chained.",
	},
	"AuditReport": {
		"whole":   "No record of any chain was changed, removed or put in later, and all expected hashes are there.",
		"chains":  "One for each database of the inbox.",
		"missing": "Expected hashes that no chain holds: they were made anew, or are of records that were removed for their age.",
	},
	"AuditChain": {
		"cell":    "The database of the inbox; absent when there is one.",
		"records": "How many records fit, up to the first that does not.",
		"older":   "How many records are from before they were chained. Nothing is known of these.",
		"trimmed": "The revision of the last record that was removed for its age; 0 for none.",
		"last":    "The revision of the last record that fits.",
		"head":    "Its hash: keep it elsewhere. Empty before the first.",
		"holds":   "Which of the expected hashes are there.",
		"break":   "The first record that does not fit; absent when all do.",
	},
	"AuditBreak": {
		"revision": "Of the record.",
		"changed":  "When it says that it was made; absent when there is none.",
		"found":    "What is there.",
		"want":     "What should be.",
	},
	"Diff": {
		"old":     "The hash of the definition before.",
		"new":     "The hash of the definition for new events.",
		"changes": "What differs; empty when nothing does.",
	},
	"Difference": {
		"what":   "flow, pipeline, stage, handler, order, state, service, config or trigger.",
		"name":   "An id or a path.",
		"change": "added, removed, changed or moved.",
	},
	"Assignment": {
		"version": "Grows with each change.",
		"epoch":   "The node that made it.",
		"changed": "When it was made.",
		"workers": "All workers that ever held a partition. They keep their places: new ones come at the end.",
		"owners":  "For each partition, the place of its worker; -1 for nobody.",
		"since":   "For each partition, the version by which it came to its worker: the fencing token of the worker.",
	},
	"RunFit": {
		"bundle": "The hash of the definition by which the run goes on now.",
		"why":    "Why it is pinned to it; left out when it is not.",
	},
	"RunsMoved": {
		"bundle":   "The hash of the present definition.",
		"done":     "How many runs go on by it, or would. Those that a node works on do so when their calls under way have ended.",
		"pinned":   "Runs that do not fit; they stay as they are.",
		"moved_on": "How many runs have ended meanwhile.",
		"next":     "The cursor of the rest; null at the end.",
	},
	"RunsDone": {
		"done":     "How many runs were retried or cancelled.",
		"moved_on": "How many runs could not be, or not any more: others had changed them meanwhile.",
		"next":     "The cursor of the rest; null at the end.",
	},
	"RunsPreview": {
		"groups": "All of them, counted by pipeline, handler and class of error.",
		"runs":   "The first ten accepted.",
	},
	"ConfigView": {
		"default":  "The value in the files; null when the setting is not declared there.",
		"revision": "Grows with every change; 0 when the setting was never changed at run time.",
	},
}
