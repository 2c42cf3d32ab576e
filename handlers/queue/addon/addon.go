// Package addon plugs the queue of tasks into procaas.
package addon

import (
	"context"
	"log/slog"
	"sync"

	"github.com/spf13/pflag"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/addon"
	"procaas/engine/api"
	"procaas/engine/api/ui"
	"procaas/engine/store"
	"procaas/handlers/queue"
	queueapi "procaas/handlers/queue/api"
	"procaas/handlers/queue/console"
	"procaas/handlers/queue/language"
	"procaas/handlers/queue/taskrun"
)

// New returns the add-on.
func New() addon.Addon {
	return addon.Addon{
		Name: "queue", Sections: []tree.Section{language.Section()}, Alerts: alerts, Types: queue.Types,
		Problems: queueapi.Problems(), New: newProcess,
		Commands: func(addon.Tools) []addon.Command { return []addon.Command{{Command: queueCommand()}} },
	}
}

// A process is the queue in one process.
type process struct {
	strict bool             // refuse tasks of types without workers
	tasks  *store.TaskStore // nil before open
	audit  store.Documents
}

func newProcess() *addon.Process {
	p := &process{}
	return &addon.Process{Flags: p.flags, Attach: attach, Open: p.open, Calls: p.calls, Pages: p.pages}
}

func (p *process) flags(on *pflag.FlagSet) {
	on.BoolVar(&p.strict, "strict-queues", false, "refuse tasks of a type that no pipeline declares and no worker has "+
		"asked for, instead of warning")
}

// attach opens the tables of tasks in PostgreSQL. Those in SQLite are part of its store.
func attach(ctx context.Context, c *store.Cell, dsn string, log *slog.Logger) error {
	return queue.Attach(ctx, c, dsn, queue.Options{Log: log})
}

func (p *process) open(_ context.Context, h *addon.Host) (*addon.Part, error) {
	tasks := taskrun.MeasureTasks(h.Store.Tasks, h.Metrics)
	p.tasks, p.audit = tasks, h.Store.Documents
	return &addon.Part{
		Types: queue.Bind(queue.Types(), tasks), Erase: erases(tasks.Eraser, h.Bundle),
		Run: func(ctx context.Context, n addon.Running) error {
			var tending sync.WaitGroup
			tending.Go(func() { taskrun.TendTasks(ctx, tasks.Maintenance, h.Retention, h.Log) })
			if tasks.Enqueued != nil {
				tending.Go(func() { taskrun.TakeEnqueued(ctx, tasks, h.Bundle, h.Log) })
			}
			server := &taskrun.Server{Runs: n.Engine, Tasks: tasks, Log: h.Log, Name: h.Name, Lease: h.Lease, Submit: n.Engine.SubmitOne}
			server.Serve(ctx)
			tending.Wait()
			return nil
		},
	}, nil
}

func (p *process) pages(*engine.Engine) []ui.Page {
	if p.tasks == nil {
		return console.Pages(nil)
	}
	return console.Pages(p.tasks.Admin)
}

func (p *process) calls(e *engine.Engine) api.Group {
	return queueapi.Calls(queueapi.Options{Engine: e, Tasks: p.tasks, Documents: p.audit, Strict: p.strict})
}
