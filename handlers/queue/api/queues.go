// Package api serves the queue of tasks to external workers, to programs that put tasks, and to
// operators.
package api

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/api"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/queue/remote"
)

// An Engine knows the types of tasks, and their runs.
type Engine interface {
	Bundle() *tree.Bundle

	// Supersede ends the failed runs of tasks whose work other tasks do again.
	Supersede(ctx context.Context, pipeline string, retried []store.TaskRetry, by store.Actor) error

	// RunStatus returns the status of a run, or [store.ErrNotFound].
	RunStatus(ctx context.Context, run string) (model.Status, error)

	// WakeRun lets a parked run look at what it waits for.
	WakeRun(ctx context.Context, run string) error
}

// Options are what the calls about tasks need.
type Options struct {
	Engine    Engine
	Tasks     *store.TaskStore // nil for none
	Documents store.Documents  // with the audit of changes

	// Strict refuses tasks of types that no pipeline declares and no worker asks for. Otherwise they are accepted
	// with a warning.
	Strict bool
}

// A Group serves the calls about tasks.
type Group struct {
	Options
	api.Server

	served servedTypes
	waited atomic.Pointer[waitedTypes] // of the last definition
}

// Calls describes the group in the API.
func Calls(o Options) api.Group {
	return api.Group{
		Tag: "queues", About: "Tasks for workers that are other programs.", Before: "clusters",
		Operations: func(s api.Server) []rest.Operation { return (&Group{Options: o, Server: s}).Operations() },
	}
}

// These bound workers' requests.
const (
	defaultLease = 30 * time.Second
	maxTaskLease = 24 * time.Hour
	maxTasks     = 1000 // in one call
	pollAtLeast  = 50 * time.Millisecond
	pollAtMost   = time.Second
	maxClaimWait = 20 * time.Second
)

// Operations lists the calls.
func (g *Group) Operations() []rest.Operation {
	return append([]rest.Operation{g.putOperation()}, append(g.workerOperations(), g.officeOperations()...)...)
}

// typed is [rest.Typed] for calls that a server without tasks refuses.
func typed[In, Out any](g *Group, o rest.Operation, serve func(*rest.Call, *In) (Out, error)) rest.Operation {
	o = rest.Typed(o, serve)
	next := o.Serve
	o.Serve = func(c *rest.Call) error {
		if g.Tasks == nil {
			return noTasks.New("this server keeps no tasks: its store has no tables for them")
		}
		return next(c)
	}
	return o
}

func (g *Group) workerOperations() []rest.Operation {
	const example = "1001.1.1.thumbnails"
	refusals := []string{problem.StoreUnavailable}
	done := []rest.Reply{{About: "The receipts that are no longer valid.", Example: remote.TasksDone{Done: 1, Lost: []string{}}}}
	receipts := []string{example}
	post := func(verb, summary, about string, example any, replies []rest.Reply) rest.Operation {
		return rest.Operation{
			Method: http.MethodPost, Path: "/v1/queues/" + verb, ID: verb + "-tasks", Need: rest.Works, Tag: "queues",
			Summary: summary, About: about,
			Example: example, Replies: slices.Clone(replies), Refusals: refusals, Problems: []problem.Kind{noTasks},
		}
	}
	claim := post("claim", "Take tasks",
		"Takes the most urgent ready tasks of several types. It can wait if there is none. A task belongs to the caller until its "+
			"lease ends. Send heartbeats to extend the lease.",
		remote.ClaimTasks{
			Worker: "worker-1", Types: []remote.ClaimType{{Type: "thumbnails", Limit: 10}}, Lease: wire.Duration(30 * time.Second),
			Wait: wire.Duration(20 * time.Second),
		}, rest.OK("The tasks, the most urgent first."))
	claim.Waits = func(*http.Request) time.Duration { return maxClaimWait } // and the call extends the server's deadlines
	return []rest.Operation{
		typed(g, claim, g.claim),
		typed(g, post("heartbeat", "Extend the leases of "+
			"tasks", "", remote.TaskHeartbeat{Receipts: receipts, Lease: wire.Duration(30 * time.Second)},
			done), g.heartbeat),
		typed(g, post("complete", "Complete tasks", "A run that waits for a task with `queue.task` gets its result.",
			remote.CompletedTasks{Receipts: receipts}, done), g.complete),
		typed(g, post("fail", "Fail attempts", "The retry policy of its type decides about the next attempt. A task without further "+
			"attempts becomes a dead letter.",
			remote.FailedTasks{Tasks: []remote.FailedTask{{Receipt: example, Error: "no space left"}}}, done), g.fail),
		typed(g, post("snooze", "Return tasks without counting an attempt", "",
			remote.SnoozedTasks{Tasks: []remote.SnoozedTask{{Receipt: example, Delay: wire.Duration(time.Minute)}}}, done), g.snooze),
		typed(g, rest.Operation{
			Method: http.MethodGet, Path: "/v1/queues", ID: "list-queues", Need: rest.Views, Tag: "queues",
			Summary:  "Count the tasks of each type",
			Replies:  rest.OK("All types that have tasks, or were paused or drained."),
			Refusals: refusals, Problems: []problem.Kind{noTasks},
		}, g.list),
		typed(g, rest.Operation{
			Method: http.MethodGet, Path: "/v1/queue-tables", ID: "list-queue-tables", Need: rest.Views, Tag: "queues",
			Summary: "List the tables of the queue",
			About:   "Says how many rows wait for a vacuum, and which table needs one now. A store in SQLite has no such rows, and the list is empty.",
			Replies: rest.OK("The tables."), Refusals: refusals,
		}, g.tables),
		typed(g, rest.Operation{
			Method: http.MethodGet, Path: "/v1/queues/{pipeline}/tasks", ID: "list-tasks", Need: rest.Views, Tag: "queues",
			Summary: "List the tasks of a type without taking them",
			About:   "Lists tasks in the order in which workers will take them, and ended tasks newest first. The default is all unfinished tasks.",
			Replies: rest.OK("The tasks."), Refusals: []string{problem.InvalidParameter, problem.StoreUnavailable},
			Problems: []problem.Kind{unknownTaskType, noTasks},
		}, g.peek),
	}
}
