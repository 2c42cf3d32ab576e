package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"procaas/cmd/procaas/addons"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/api"
	"procaas/engine/api/access"
	"procaas/engine/api/admin"
	"procaas/engine/api/controls"
	"procaas/engine/api/intake"
	"procaas/engine/api/runs"
	triggersapi "procaas/engine/api/triggers"
	"procaas/engine/api/ui"
	"procaas/engine/canary"
	"procaas/engine/checkpoint"
	"procaas/engine/credentials"
	"procaas/engine/definitions"
	"procaas/engine/diff"
	"procaas/engine/enginetest"
	"procaas/engine/explain"
	"procaas/engine/fallback"
	"procaas/engine/guard"
	engineintake "procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/records"
	"procaas/engine/settings"
	"procaas/engine/stats"
	"procaas/engine/steering"
	"procaas/engine/store"
	"procaas/engine/triggers"
	"procaas/engine/watch"
	"procaas/handlers"
	balancerapi "procaas/handlers/balancer/api"
	"procaas/handlers/balancer/clusters"
	balancerconsole "procaas/handlers/balancer/console"
	queueapi "procaas/handlers/queue/api"
	queueconsole "procaas/handlers/queue/console"
	shardingapi "procaas/handlers/sharding/api"
	shardingconsole "procaas/handlers/sharding/console"
	"procaas/handlers/sharding/transfers"
)

// began is when everything happens in the fake engine.
var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var errDown = errors.New("dial store at secret-host: connection refused")

// whole is all that the API needs, of one fake that has it.
type whole interface {
	intake.Intake
	runs.Reader
	runs.Steerer
	runs.Mover
	controls.Controls
	controls.Settings
	triggersapi.Triggers
	queueapi.Engine
	admin.Status
	admin.Tokens
	admin.Versions
	access.Access
	api.Health
	ui.Definition
	ui.Node
	ui.Runs
	ui.Steering
	ui.Switches
	ui.Changes
}

func portsOf(e whole) api.Ports {
	return api.Ports{
		Intake: e, Runs: e, Steer: e, Mover: e, Controls: e, Settings: e, Triggers: e,
		Status: e, Tokens: e, Versions: e, Access: e, Health: e,
		Console: ui.Engine{Definition: e, Node: e, Runs: e, Steering: e, Switches: e, Firing: e, Changes: e, History: e},
	}
}

// products are what the products serve to tests.
type products struct {
	tasks  *store.TaskStore
	shards transfers.ShardMaps
	strict bool

	// Nil is those of the fake engine.
	clusters balancerapi.Clusters
	moving   shardingapi.Transfers
	audited  store.Documents
}

// withProducts adds the calls and pages of the products to options. A strict
// queue refuses types that nobody asks for.
func withProducts(e whole, o api.Options, served ...products) api.Options {
	var p products
	if len(served) > 0 {
		p = served[0]
	}
	if f, ok := e.(*fakeEngine); ok && p.clusters == nil {
		p.clusters, p.moving, p.audited = f, f, f.audited
	}
	o.Engine = portsOf(e)
	o.Groups = []api.Group{
		balancerapi.Calls(p.clusters), shardingapi.Calls(p.shards, p.moving),
		queueapi.Calls(queueapi.Options{Engine: e, Tasks: p.tasks, Documents: p.audited, Strict: p.strict}),
	}
	var tasks queueconsole.Tasks
	if p.tasks != nil {
		tasks = p.tasks.Admin
	}
	o.Pages = slices.Concat(balancerconsole.Pages(p.clusters), shardingconsole.Pages(p.shards, p.moving), queueconsole.Pages(tasks))
	return o
}

// A fakeEngine keeps in memory what an engine must: which events it has
// accepted, their runs and the live settings. It runs nothing.
type fakeEngine struct {
	refused    []string   // to bearers of tokens
	mu         sync.Mutex // guards the rest
	bundle     *tree.Bundle
	down       bool
	overloaded bool
	panics     bool
	seen       []model.Event // accepted, in order
	runs       []checkpoint.RunView
	configs    map[string]settings.ConfigView
	actors     []store.Actor
	audit      []records.AuditView
	wrong      bool // the pipelines have errors

	controls *engine.Engine // keeps the controls and the tokens; it does not run
	clusters *clusters.Clusters
	audited  store.Documents // of changes of the queue
	known    map[string]credentials.Grant
}

func newFake(b *tree.Bundle) *fakeEngine {
	kept := enginetest.NewMemory().Ports()
	controls, err := engine.New(engine.Options{Store: kept, Types: handlers.All(), Bundle: b})
	if err != nil {
		panic(err)
	}
	return &fakeEngine{bundle: b, controls: controls, clusters: clusters.NewClusters(kept, controls.Bundle, controls.Now), audited: kept.Documents, known: map[string]credentials.Grant{}, configs: map[string]settings.ConfigView{
		"NOTIFY_SWITCH": {Name: "NOTIFY_SWITCH", Value: map[string]any{"enabled": true}, Default: map[string]any{"enabled": true}},
		"CITIES":        {Name: "CITIES", Value: []any{}, Default: []any{}},
	}}
}

func (f *fakeEngine) Submit(_ context.Context, in []engineintake.Submission) ([]engineintake.Submitted, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.panics {
		panic("index of secret-row out of range")
	}
	if f.down {
		return nil, errDown
	}
	var out []engineintake.Submitted
	for _, s := range in {
		if s.Queue != "" {
			s.Event.Source = "procaas/queue/" + s.Queue
		}
		receipt, err := f.accept(s.Event)
		out = append(out, engineintake.Submitted{Receipt: receipt, Err: err})
	}
	return out, nil
}

func (f *fakeEngine) Overload() *engineintake.OverloadError {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.overloaded {
		return nil
	}
	return &engineintake.OverloadError{Wait: 1260 * time.Millisecond, After: 2100 * time.Millisecond}
}

func (f *fakeEngine) accept(e model.Event) (model.Receipt, error) {
	switch {
	case len(f.bundle.On(e.Type)) == 0:
		return model.Receipt{}, &engineintake.Error{
			Code: "unknown_event_type",
			Message: fmt.Sprintf("no pipeline serves events of type %q",
				e.Type), Field: "type",
		}
	case e.Type == "driver-found" && e.Key == "":
		return model.Receipt{}, &engineintake.Error{Code: "missing_key", Message: "the flow taxi-order needs a key", Field: "key"}
	case e.Type == "order-finished":
		return model.Receipt{}, &engineintake.Error{Code: "event_rejected", Message: "an order that is finished takes no order-finished"}
	case strings.ContainsFunc(e.Type+e.ID+e.Source+e.Key, unicode.IsControl) || !utf8.ValidString(e.ID) || len(e.Key) > engineintake.MaxKey:
		return model.Receipt{}, &engineintake.Error{Code: "invalid_event", Message: "want short printable text", Field: "key"}
	case e.Payload == "odd":
		return model.Receipt{}, &engineintake.Error{Code: "odd_payload", Message: "want an even payload", Field: "payload.order-id"}
	}
	for i, old := range f.seen {
		if e.ID == "" || old.ID != e.ID || old.Source != e.Source {
			continue
		}
		if !reflect.DeepEqual(old, e) {
			return model.Receipt{}, &engineintake.Error{Code: "id_conflict", Message: "event " + e.ID +
				" was accepted before with another content", Field: "id"}
		}
		return model.Receipt{Event: e.ID, Run: f.runs[i].ID, Duplicate: true}, nil
	}
	f.seen = append(f.seen, e)
	run := checkpoint.RunView{
		ID: fmt.Sprintf("run-%d", len(f.seen)), Pipeline: f.bundle.On(e.Type)[0].ID, Flow: "taxi-order", Key: e.Key,
		Status: model.Waiting, Accepted: began, SharedState: map[string]any{}, Handlers: []checkpoint.HandlerView{},
		Event: checkpoint.EventView{ID: e.ID, Source: e.Source, Type: e.Type, Time: began, Key: e.Key, Payload: e.Payload},
	}
	if e.Payload == nil {
		run.Event.Payload = json.RawMessage(nil)
	}
	if run.Event.ID == "" {
		run.Event.ID = fmt.Sprintf("made-%d", len(f.seen))
	}
	f.runs = append(f.runs, run)
	return model.Receipt{Event: run.Event.ID, Run: run.ID}, nil
}

// end sets how a run ended.
func (f *fakeEngine) end(id string, s model.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.find(id)
	r.Status, r.Finished = s, &began
	if s == model.Failed {
		r.FailedPath, r.Error, r.ErrorClass = "new-order-created/fetch-order/get-order", "attempt 3: 503", "503"
		r.Handlers = []checkpoint.HandlerView{{
			Path: r.FailedPath, Outcome: "failed", Attempts: 3, Started: &began, Finished: &began,
			Error: "503",
		}}
	}
}

func (f *fakeEngine) find(id string) *checkpoint.RunView {
	i := slices.IndexFunc(f.runs, func(r checkpoint.RunView) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return &f.runs[i]
}

func (f *fakeEngine) steer(id string, may func(model.Status) bool, change func(*checkpoint.RunView)) (checkpoint.RunView, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return checkpoint.RunView{}, errDown
	}
	r := f.find(id)
	if r == nil {
		return checkpoint.RunView{}, fmt.Errorf("run %s: %w", id, store.ErrNotFound)
	}
	if !may(r.Status) {
		return checkpoint.RunView{}, fmt.Errorf("run %s is %s: %w", id, r.Status, store.ErrConflict)
	}
	change(r)
	return *r, nil
}

// AwaitRun implements [runs.Reader]: a fake runs nothing, so that a run that goes on does so forever.
func (f *fakeEngine) AwaitRun(ctx context.Context, id string) (checkpoint.RunView, error) {
	run, err := f.RunByID(ctx, id)
	if err == nil && !run.Status.Ended() {
		<-ctx.Done()
		err = ctx.Err()
	}
	return run, err
}

func (f *fakeEngine) AwaitEnd(ctx context.Context, id string) (checkpoint.RunView, error) {
	return f.AwaitRun(ctx, id)
}

func (f *fakeEngine) FollowRun(ctx context.Context, id string) (*watch.Progress, error) {
	return f.controls.FollowRun(ctx, id)
}

func (f *fakeEngine) RunByID(_ context.Context, id string) (checkpoint.RunView, error) {
	return f.steer(id, func(model.Status) bool { return true }, func(*checkpoint.RunView) {})
}

func (f *fakeEngine) Explain(ctx context.Context, run, path string) (explain.Explanation, error) {
	if _, err := f.RunByID(ctx, run); err != nil {
		return explain.Explanation{}, err
	}
	if path != "get-order" {
		return explain.Explanation{}, fmt.Errorf("%w: pipeline new-order-created has no handler %s", explain.ErrNoHandler, path)
	}
	trace := &expr.Trace{Text: "a and b", To: 7, Outcome: expr.TraceValue, Values: []any{false}, Times: 1, Parts: []*expr.Trace{
		{Text: "a", To: 1, Outcome: expr.TraceValue, Values: []any{false}, Times: 1, Parts: []*expr.Trace{}},
		{Text: "b", From: 6, To: 7, Outcome: expr.TraceNotNeeded, Values: []any{}, Parts: []*expr.Trace{}},
	}}
	return explain.Explanation{
		Run: run, Pipeline: "new-order-created", Status: model.Succeeded, Path: "new-order-created/fetch-order/get-order",
		Outcome: model.OutcomeSkipped, DecidedBy: "enabled", Summary: "it was left out: enabled is false: a and b", At: &began,
		Handler: &checkpoint.HandlerView{Path: "new-order-created/fetch-order/get-order", Outcome: model.OutcomeSkipped, Finished: &began},
		Tries:   []explain.TryView{}, WaitedFor: []explain.WaitedFor{}, Missing: []string{}, Now: []string{"rolled out to 25 %"},
		Decisions: []explain.Decision{{
			What: "enabled", Source: "a and b", File: "flow.yaml", Line: 7, Column: 3, Result: "false",
			Trace: trace,
		}},
	}, nil
}

func (f *fakeEngine) Story(ctx context.Context, run string) (explain.Story, error) {
	view, err := f.RunByID(ctx, run)
	if err != nil {
		return explain.Story{}, err
	}
	later := began.Add(2 * time.Second)
	return explain.Story{
		Run: view, Missing: []string{"which handler set <b>"},
		Stages: []explain.StoryStage{{ID: "fetch-order", Steps: []explain.StoryStep{{
			Path: "new-order-created/fetch-order/get-order", Critical: true, Outcome: model.OutcomeFailed, Summary: "it ran, and gave up after " +
				"attempt 2: 503",
			Handler: &checkpoint.HandlerView{
				Path: "new-order-created/fetch-order/get-order", Outcome: model.OutcomeFailed, Attempts: 2,
				Started: &began, Finished: &later,
			},
			Tries: []explain.TryView{{Number: 1, Began: began, Ended: &began, Error: "500 <b>"}, {
				Number: 2, Began: later, Ended: &later,
				Error: "503",
			}},
			Request: map[string]any{"token": "***"}, ResponseGone: "it is not kept",
		}}, Changes: []explain.StateChange{
			{Name: "order", Before: explain.StateValue{}, After: explain.StateValue{Value: map[string]any{"price": 7, "<b>": 1}}},
			{Name: "note", Before: explain.StateValue{Gone: "too large"}, After: explain.StateValue{Value: "new"}},
		}}},
	}, nil
}

func (f *fakeEngine) Retry(_ context.Context, id string, by store.Actor) (checkpoint.RunView, error) {
	return f.steer(id, func(s model.Status) bool { return s == model.Failed }, func(r *checkpoint.RunView) {
		r.Status, r.Generation, r.Finished, r.Error, r.FailedPath = model.Waiting, r.Generation+1, nil, "", ""
		r.ErrorClass = ""
	})
}

func (f *fakeEngine) Cancel(_ context.Context, id string, by store.Actor) (checkpoint.RunView, error) {
	return f.steer(id, func(s model.Status) bool { return !s.Ended() }, func(r *checkpoint.RunView) {
		r.Status, r.Reason, r.Finished = model.Cancelled, by.Reason, &began
	})
}

func (f *fakeEngine) Abandon(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error) {
	by.Reason += " (abandoned)"
	return f.Cancel(ctx, id, by)
}

func (f *fakeEngine) List(_ context.Context, filter store.RunFilter) ([]checkpoint.RunView, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, "", errDown
	}
	if filter.Cursor != "" && f.find(filter.Cursor) == nil {
		return nil, "", store.ErrCursor
	}
	page := []checkpoint.RunView{}
	runs := slices.Clone(f.runs)
	if !filter.Oldest {
		slices.Reverse(runs)
	}
	for _, r := range runs {
		switch {
		case filter.Cursor != "" && (r.ID > filter.Cursor) != filter.Oldest, filter.Cursor == r.ID,
			filter.ErrorClass != "" && !model.IsOfClass(r.ErrorClass, filter.ErrorClass),
			filter.FailedPath != "" && !strings.HasPrefix(r.FailedPath, filter.FailedPath), !strings.Contains(r.Error, filter.Error),
			!filter.Since.IsZero() && r.Accepted.Before(filter.Since), !filter.Until.IsZero() && !r.Accepted.Before(filter.Until),
			!filter.FailedSince.IsZero() && (r.Status != model.Failed || r.Finished == nil || r.Finished.Before(filter.FailedSince)),
			filter.Live && r.Status.Ended() && r.Status != model.Failed, filter.Begun && r.Stage == 0,
			filter.Status != "" && r.Status != filter.Status, filter.Pipeline != "" && r.Pipeline != filter.Pipeline,
			filter.Bundle != "" && r.Bundle != filter.Bundle, filter.Flow != "" && r.Flow != filter.Flow, filter.Key != "" && r.Key != filter.Key:
		case len(page) == filter.Limit:
			return page, page[len(page)-1].ID, nil
		default:
			r.Event.Payload, r.SharedState = nil, nil
			page = append(page, r)
		}
	}
	return page, "", nil
}

func (f *fakeEngine) Entity(_ context.Context, flow, key string) (checkpoint.EntityView, error) {
	if flow != "taxi-order" {
		return checkpoint.EntityView{}, fmt.Errorf("flow %s: %w", flow, store.ErrNotFound)
	}
	runs, _, err := f.List(context.Background(), store.RunFilter{Key: key, Limit: 50})
	return checkpoint.EntityView{Flow: flow, Key: key, State: "created", SharedState: map[string]any{}, Waiting: len(runs), Runs: runs}, err
}

func (f *fakeEngine) Configs(context.Context) ([]settings.ConfigView, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, errDown
	}
	var out []settings.ConfigView
	for _, c := range f.configs {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b settings.ConfigView) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (f *fakeEngine) SetConfig(ctx context.Context, name string, value any, ifRevision int64,
	by store.Actor,
) (settings.ConfigView, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.controls.SetConfig(ctx, name, value, -1, by); err != nil {
		return settings.ConfigView{}, err
	}
	c, known := f.configs[name]
	if !known {
		return settings.ConfigView{}, &definitions.ConfigError{Code: "unknown_config", Message: "config " + name + " is not declared"}
	}
	if ifRevision >= 0 && ifRevision != c.Revision {
		return settings.ConfigView{}, fmt.Errorf("config %s: %w", name, store.ErrConflict)
	}
	f.audit = append(f.audit, records.AuditView{
		Changed: began, By: by.Name, Reason: by.Reason, Kind: store.AuditConfig, Name: name,
		Before: c.Value, After: value,
	})
	c.Name, c.Value, c.Revision, c.Changed, c.By, c.Reason = name, value, c.Revision+1, &began, by.Name, by.Reason
	f.configs[name], f.actors = c, append(f.actors, by)
	return c, nil
}

func (f *fakeEngine) Controls(ctx context.Context) ([]guard.ControlView, error) {
	if f.down {
		return nil, errDown
	}
	list, err := f.controls.Controls(ctx)
	for i := range list {
		list[i].Changed = began
	}
	return list, err
}

// Now is when everything happens.
func (f *fakeEngine) Now() time.Time { return began }

// SteeredBy knows one trigger.
func (f *fakeEngine) SteeredBy(path string) []string {
	if path == "triggers/nightly" {
		return []string{"new-order-created"}
	}
	return nil
}

func (f *fakeEngine) Triggers(_ context.Context, next int, reads func([]string) bool) ([]triggers.TriggerView, error) {
	if f.down {
		return nil, errDown
	}
	all := []triggers.TriggerView{}
	for id, pipeline := range map[string]string{"nightly": "new-order-created"} {
		if reads([]string{pipeline}) {
			all = append(all, triggers.TriggerView{
				ID: id, Event: pipeline, Pipelines: []string{pipeline}, Every: "1h0m0s", TimeZone: "UTC", CatchUp: "skip", Overlap: "skip",
				State: triggers.StatePaused, Pause: &triggers.TriggerPause{By: "ann", Reason: "of-nobody-else", Since: began}, Next: slices.Repeat([]time.Time{began}, next),
				Skip: &triggers.TriggerSkip{Time: began, Reason: triggers.Paused}, Skipped: triggers.TriggerSkips{Paused: 1},
			})
		}
	}
	return all, nil
}

func (f *fakeEngine) RunTrigger(_ context.Context, id, firing string, by store.Actor) (steering.FiredNow, error) {
	if id != "nightly" {
		return steering.FiredNow{}, &guard.ControlError{Code: guard.CodeTriggerNotFound, Message: "there is no trigger " + id}
	}
	f.actors = append(f.actors, by)
	return steering.FiredNow{Trigger: id, Event: "-run-now-" + firing, Run: "r1"}, nil
}

func (f *fakeEngine) BackfillTrigger(_ context.Context, id string, how steering.Backfill, by store.Actor) (steering.Backfilled, error) {
	if !how.From.Before(how.To) {
		return steering.Backfilled{}, &steering.BackfillError{Message: "from: want a time before to"}
	}
	f.actors = append(f.actors, by)
	return steering.Backfilled{
		Trigger: id, DryRun: how.DryRun, To: how.To, Times: []steering.PastTime{{Time: how.From, Run: "r1", Ran: true}, {Time: began}}, Fired: 1, Ran: 1,
		Left: 1, Next: &began,
	}, nil
}

func (f *fakeEngine) ControlEffect(ctx context.Context, path string, change guard.ControlChange) (steering.ControlEffect, error) {
	return f.controls.ControlEffect(ctx, path, change)
}

func (f *fakeEngine) SetControl(ctx context.Context, path string, change guard.ControlChange, ifRevision int64,
	by store.Actor,
) (guard.ControlView, error) {
	if f.down {
		return guard.ControlView{}, errDown
	}
	v, err := f.controls.SetControl(ctx, path, change, ifRevision, by)
	v.Changed = began
	return v, err
}

func (f *fakeEngine) RemoveControl(ctx context.Context, path string, ifRevision int64, by store.Actor) (int64, error) {
	return f.controls.RemoveControl(ctx, path, ifRevision, by)
}

func (f *fakeEngine) UndoControl(ctx context.Context, revision int64, by store.Actor) (string, *guard.ControlView, error) {
	path, v, err := f.controls.UndoControl(ctx, revision, by)
	if v != nil {
		v.Changed = began
	}
	return path, v, err
}

func (f *fakeEngine) EndFallbacks(ctx context.Context, path string, by store.Actor) ([]string, error) {
	if f.down {
		return nil, errDown
	}
	if _, err := f.controls.EndFallbacks(ctx, path, by); err != nil {
		return nil, err
	}
	return []string{"new-order-created/notify/bonus"}, nil
}

func (f *fakeEngine) Guarded(ctx context.Context) (bool, error) { return f.controls.Guarded(ctx) }

func (f *fakeEngine) RefuseSource(ctx context.Context, g credentials.Grant, source string) (string, error) {
	return f.controls.RefuseSource(ctx, g, source)
}

func (f *fakeEngine) GrantOf(ctx context.Context, token [sha256.Size]byte) (credentials.Grant, error) {
	for known, grant := range f.known {
		if sha256.Sum256([]byte(known)) == token {
			return grant, nil
		}
	}
	return f.controls.GrantOf(ctx, token)
}

func (f *fakeEngine) GrantOfCertificate(ctx context.Context, names []string) (credentials.Grant, error) {
	return f.controls.GrantOfCertificate(ctx, names)
}

func (f *fakeEngine) AuditRefusal(ctx context.Context, by store.Actor, call, detail string) error {
	f.refused = append(f.refused, by.Name+" "+call+": "+detail)
	return nil
}

func (f *fakeEngine) OpenSession(ctx context.Context, name string, token [sha256.Size]byte) (string, error) {
	return f.controls.OpenSession(ctx, name, token)
}

func (f *fakeEngine) OpenSessionOf(ctx context.Context, who credentials.Identity) (string, error) {
	return f.controls.OpenSessionOf(ctx, who)
}

func (f *fakeEngine) SignedIn(ctx context.Context, session string) (credentials.Session, error) {
	return f.controls.SignedIn(ctx, session)
}

func (f *fakeEngine) CloseSession(ctx context.Context, session string) error {
	return f.controls.CloseSession(ctx, session)
}

func (f *fakeEngine) Tokens(ctx context.Context) ([]credentials.TokenView, error) {
	if f.down {
		return nil, errDown
	}
	list, err := f.controls.Tokens(ctx)
	for i := range list {
		list[i].Changed = began
	}
	return list, err
}

// NewToken makes a token that tests can know before.
func (f *fakeEngine) NewToken(ctx context.Context, spec credentials.TokenSpec, by store.Actor) (credentials.TokenView, string, error) {
	v, secret, err := f.controls.NewToken(ctx, spec, by)
	if err == nil {
		g, err := f.controls.GrantOf(ctx, sha256.Sum256([]byte(secret)))
		if err != nil {
			return v, "", err
		}
		secret = "procaas_" + spec.Name
		f.known[secret] = g
		v.Changed = began
	}
	return v, secret, err
}

func (f *fakeEngine) RevokeToken(ctx context.Context, name string, by store.Actor) (credentials.TokenView, error) {
	v, err := f.controls.RevokeToken(ctx, name, by)
	if err == nil {
		delete(f.known, "procaas_"+name)
		v.Changed = began
	}
	return v, err
}

func (f *fakeEngine) VerifyAudit(_ context.Context, kept []string) (records.AuditReport, error) {
	if f.down {
		return records.AuditReport{}, errDown
	}
	return records.AuditReport{
		Whole: len(kept) == 0, Missing: append([]string{}, kept...),
		Chains: []store.AuditChain{{Records: 2, Last: 2, Head: "ab", Holds: []string{}}},
	}, nil
}

func (f *fakeEngine) NoteEvent(context.Context, string, records.AuditedEvent, store.Actor) error {
	return nil
}

func (f *fakeEngine) Audit(_ context.Context, filter store.AuditFilter) ([]records.AuditView, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, errDown
	}
	out := []records.AuditView{}
	for i, a := range slices.Backward(f.audit) {
		a.Revision = int64(i + 1)
		if (filter.Before == 0 || a.Revision < filter.Before) && (filter.Kind == "" || a.Kind == filter.Kind) && len(out) < filter.Limit {
			out = append(out, a)
		}
	}
	return out, nil
}

func (f *fakeEngine) Preview(ctx context.Context, filter store.RunFilter) (records.RunsPreview, error) {
	filter.Oldest, filter.Limit, filter.Cursor = true, 1000, ""
	runs, _, err := f.List(ctx, filter)
	groups := []store.RunCount{}
	if len(runs) > 0 {
		groups = append(groups, store.RunCount{
			Pipeline: runs[0].Pipeline, FailedPath: runs[0].FailedPath, ErrorClass: runs[0].ErrorClass,
			Runs: len(runs),
		})
	}
	return records.RunsPreview{Preview: true, Total: len(runs), Groups: groups, Runs: runs}, err
}

func (f *fakeEngine) MakeUpAll(ctx context.Context, filter store.RunFilter, by store.Actor) (records.RunsDone, error) {
	return f.RetryAll(ctx, filter, by)
}

// Rerun knows only the stage notify.
func (f *fakeEngine) Rerun(ctx context.Context, id, stage string, by store.Actor) (checkpoint.RunView, error) {
	p, err := f.RerunPlan(ctx, id, stage)
	if err != nil {
		return checkpoint.RunView{}, err
	}
	f.mu.Lock()
	f.actors = append(f.actors, by)
	receipt, err := f.accept(model.Event{Type: f.find(id).Event.Type, Key: p.Key, Payload: f.find(id).Event.Payload})
	f.mu.Unlock()
	if err != nil {
		return checkpoint.RunView{}, err
	}
	v, err := f.RunByID(ctx, receipt.Run)
	v.RerunOf, v.RerunFrom, v.RerunBy, v.RerunReason = id, stage, by.Name, by.Reason
	return v, err
}

func (f *fakeEngine) RerunPlan(ctx context.Context, id, stage string) (engineintake.RerunPlan, error) {
	v, err := f.RunByID(ctx, id)
	if err == nil && (!v.Status.Ended() || stage != "" && stage != "notify") {
		err = &engineintake.RerunError{Message: "run " + id + " cannot be run again: " +
			"it has not ended, or pipeline " + v.Pipeline + " has no such stage"}
	}
	return engineintake.RerunPlan{Preview: true, Of: id, Pipeline: v.Pipeline, Flow: v.Flow, Key: v.Key, Stage: stage, Kept: []string{}}, err
}

func (f *fakeEngine) OriginOf(context.Context, checkpoint.EventView) string { return "" }

func (f *fakeEngine) RerunAs(context.Context, checkpoint.RunView) (string, error) { return "", nil }

func (f *fakeEngine) RetryAll(ctx context.Context, filter store.RunFilter, by store.Actor) (records.RunsDone, error) {
	filter.Status = model.Failed
	return f.each(ctx, filter, func(id string) error { _, err := f.Retry(ctx, id, by); return err })
}

func (f *fakeEngine) CancelAll(ctx context.Context, filter store.RunFilter, by store.Actor) (records.RunsDone, error) {
	filter.Live = true
	return f.each(ctx, filter, func(id string) error { _, err := f.Cancel(ctx, id, by); return err })
}

func (f *fakeEngine) AbandonAll(ctx context.Context, filter store.RunFilter, by store.Actor) (records.RunsDone, error) {
	by.Reason += " (abandoned)"
	return f.CancelAll(ctx, filter, by)
}

// Fit and Move know a run as pinned when its event says so.
func (f *fakeEngine) Fit(_ context.Context, id string) (records.RunFit, error) {
	v, err := f.steer(id, func(s model.Status) bool { return !s.Ended() || s == model.Failed }, func(*checkpoint.RunView) {})
	if err != nil {
		return records.RunFit{}, err
	}
	v.Bundle = "old"
	if v.Event.Payload == "pinned" {
		return records.NewRunFit(v, records.ErrPipelineGone), nil
	}
	return records.NewRunFit(v, nil), nil
}

func (f *fakeEngine) Move(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error) {
	fit, err := f.Fit(ctx, id)
	if err != nil {
		return checkpoint.RunView{}, err
	}
	if !fit.Compatible {
		return checkpoint.RunView{}, fmt.Errorf("run %s: %w", id, &records.PinnedError{Err: records.ErrPipelineGone})
	}
	f.mu.Lock()
	f.actors = append(f.actors, by)
	f.mu.Unlock()
	return f.steer(id, func(model.Status) bool { return true }, func(r *checkpoint.RunView) { r.Bundle, r.Move = "old", "new" })
}

func (f *fakeEngine) MoveAll(ctx context.Context, filter store.RunFilter, preview bool, by store.Actor) (records.RunsMoved, error) {
	out := records.RunsMoved{Preview: preview, Bundle: "new", Fit: []records.RunFit{}, Pinned: []records.RunFit{}}
	filter.Live = true
	done, err := f.each(ctx, filter, func(id string) error {
		fit, err := f.Fit(ctx, id)
		if into := map[bool]*[]records.RunFit{true: &out.Fit, false: &out.Pinned}[fit.Compatible]; err == nil {
			*into = append(*into, fit)
		}
		return err
	})
	out.Done, out.MovedOn, out.Next = done.Done-len(out.Pinned), done.MovedOn, done.Next
	return out, err
}

func (f *fakeEngine) each(ctx context.Context, filter store.RunFilter, do func(string) error) (records.RunsDone, error) {
	filter.Oldest = true
	runs, next, err := f.List(ctx, filter)
	done := records.RunsDone{Runs: []string{}}
	if next != "" {
		done.Next = &next
	}
	for _, r := range runs {
		if do(r.ID) != nil {
			done.MovedOn++
			continue
		}
		done.Done, done.Runs = done.Done+1, append(done.Runs, r.ID)
	}
	return done, err
}

func (f *fakeEngine) Nodes(context.Context) ([]records.NodeView, error) {
	if f.down {
		return nil, errDown
	}
	return []records.NodeView{
		{Node: 2, Name: "host-2", Started: began, Seen: began, Alive: true, Runs: 3, Bundle: "new",
			Memory: &records.MemoryView{Limit: 1 << 30, Budget: 512 << 20, Used: 384 << 20, Waiting: 2}},
		{Node: 1, Name: "host-1", Started: began, Seen: began},
	}, nil
}

// fakeVersion is the only one that there is.
var fakeVersion = definitions.Version{Version: "1a2b3c", State: definitions.StateCurrent, Since: began, By: "ann", Runs: 1}

func (f *fakeEngine) Versions(context.Context, int) ([]definitions.Version, error) {
	if f.down {
		return nil, errDown
	}
	return []definitions.Version{fakeVersion}, nil
}

func (f *fakeEngine) Show(_ context.Context, name string) (definitions.VersionDetail, error) {
	if name != fakeVersion.Version {
		return definitions.VersionDetail{}, &definitions.VersionError{Message: "there is no version " + name}
	}
	return definitions.VersionDetail{Version: fakeVersion, Diff: diff.Diff{New: name}}, nil
}

func (f *fakeEngine) Differ(ctx context.Context, old, now string) (diff.Diff, error) {
	_, err := f.Show(ctx, old)
	return diff.Diff{Old: old, New: now}, err
}

func (f *fakeEngine) Previous(context.Context) (definitions.Version, error) { return fakeVersion, nil }

func (f *fakeEngine) OwnedChange(context.Context, []string, string, string) error { return nil }

func (f *fakeEngine) Find(_ context.Context, name string) (definitions.Version, error) {
	d, err := f.Show(context.Background(), name)
	return d.Version, err
}

func (f *fakeEngine) Canary() *canary.State { return nil }

func (f *fakeEngine) LastTrial(context.Context) (*canary.State, error) { return nil, nil }

func (f *fakeEngine) ShareTrial(context.Context, float64, bool, store.Actor) (*canary.State, error) {
	return nil, &definitions.CanaryError{Message: "no canary runs"}
}

func (f *fakeEngine) EndTrial(ctx context.Context, by store.Actor) (*canary.State, error) {
	return f.ShareTrial(ctx, 0, false, by)
}

// reload tells a change, or that the pipelines are wrong.
func (f *fakeEngine) reload(_ context.Context, _ definitions.Change, by store.Actor) (diff.Diff, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return diff.Diff{}, errDown
	}
	if f.wrong {
		at := diag.Span{File: "taxi.yaml", Start: diag.Pos{Line: 7, Column: 9}, End: diag.Pos{Line: 7, Column: 14}}
		return diff.Diff{}, &definitions.LoadError{Found: []diag.Diagnostic{{
			Span: at, Severity: diag.Error, Code: "PC0103", Message: "unknown field \"stges\"", Hint: "did you mean stages?",
		}}}
	}
	f.audit = append(f.audit, records.AuditView{
		Changed: began, By: by.Name, Reason: by.Reason, Kind: store.AuditDefinition, Before: "old",
		After: "new",
	})
	return diff.Diff{Old: "old", New: "new", Changes: []diff.Difference{{
		What: diff.Handler, Name: "new-order-created/notify/bonus", Change: diff.Changed,
		Fields: []diff.FieldChange{{Field: "critical", Old: "false", New: "true"}},
	}}}, nil
}

func (f *fakeEngine) Degraded() error {
	if f.wrong {
		return errors.New("new events run by an older definition")
	}
	return nil
}

func (f *fakeEngine) Bundle() *tree.Bundle { return f.bundle }

func (f *fakeEngine) Plans() (all []*planner.Plan) {
	types := engine.Types(handlers.All())
	for _, p := range f.bundle.Pipelines {
		plan, err := planner.New(f.bundle, p, types)
		if err != nil {
			panic(err)
		}
		all = append(all, plan)
	}
	return all
}

func (f *fakeEngine) Try(files []diag.File) ([]planner.PlanView, []diag.Diagnostic) {
	_, found := dsl.Load(files, dsl.Options{Language: addons.Language()})
	return nil, found
}

func (f *fakeEngine) Handlers() []stats.HandlerInfo {
	ratio, p50 := 0.875, 12.5
	return []stats.HandlerInfo{
		{
			Path: "new-order-created/fetch-order/get-order", Type: "request", Owner: "team-orders", Critical: true, Switch: "on",
			RateLimit: "100/s", Effective: []string{"limited to 100/s by its definition"}, Calls: 8, SuccessRatio: &ratio, LatencyP50: &p50,
			LatencyP99: &p50, Windows: []stats.Window{}, File: "taxi.yaml", Line: 12,
		},
		{
			Path: "new-order-created/notify/bonus", Type: "request", Owner: "<b>team</b>", Switch: "off", Windows: []stats.Window{},
			Effective: []string{"switched off at new-order-created by ann"}, Fallback: &fallback.View{
				State:   fallback.Out,
				Service: "push", Since: &began, Until: &began, Ratio: &ratio, Trips: 2, Reason: "7 of 8 calls succeeded in 30s",
			}, File: "taxi.yaml",
			Line: 30,
		},
	}
}

func (f *fakeEngine) Active() []stats.HandlerInfo { return f.Handlers() }

func (f *fakeEngine) Numbers() stats.Numbers { return stats.Numbers{} }

func (f *fakeEngine) Pipelines() []stats.PipelineInfo {
	ratio, p50 := 0.875, 12.5
	return []stats.PipelineInfo{{Pipeline: "new-order-created", Owner: "team-orders", Windows: []stats.PipelineWindow{{
		Window:   stats.Window{Period: "10s", Ended: 8, Failed: 1, PerS: 0.8, SuccessRatio: &ratio, LatencyP50: &p50, LatencyP99: &p50},
		Accepted: 9, AcceptedPerS: 0.9,
	}}}}
}

func (f *fakeEngine) Services() []guard.ServiceInfo {
	limit, closed := 1, time.Date(2026, 11, 21, 12, 0, 30, 0, time.UTC)
	return []guard.ServiceInfo{
		{
			ID: "orders", URL: "http://127.0.0.1:9081", Owner: "team-orders", Adaptive: true, Limit: &limit, InFlight: 1, Waiting: 7, Down: true,
			ClosedUntil: &closed, Calls: 20, Repeats: 4, Critical: true, FailingSince: &closed, LastError: "503 from GET", Parked: 651,
			ParkedSince: &closed,
		},
		{ID: "push", URL: "http://127.0.0.1:9082"},
	}
}

func (f *fakeEngine) Durations() []stats.DurationView {
	p50, p99, before := 180.0, 3140.0, 260.0
	return []stats.DurationView{{
		Path: "new-order-created", Owner: "team-core",
		Accepted: stats.Spans{Hour: stats.Span{Ended: 7200, P50: &p50, P99: &p99}, HourBefore: stats.Span{Ended: 7100, P50: &p50, P99: &before}},
	}}
}

func (f *fakeEngine) Costs(_ context.Context, _ string, _ int, reads func(string) bool) ([]stats.Cost, error) {
	if !reads(getOrder) {
		return nil, nil
	}
	return []stats.Cost{{
		Day: "2026-01-31", Name: getOrder, Calls: 7200, CallSeconds: 3140, RequestBytes: 3 << 10, Bytes: 1 << 20, CPUSeconds: 1.5, Runs: 7200,
	}}, nil
}

func (f *fakeEngine) SlowRuns(string, time.Time) []stats.SlowRun {
	return []stats.SlowRun{{
		Run: "06ct7s3fdpu7n78ad8u1obqe24", Pipeline: "new-order-created", Key: "o-1", Ended: began, TookMS: 3140, TurnMS: 12,
		Handler: "new-order-created/notify/note", HandlerMS: 3050, Attempts: 1,
	}}
}

func (f *fakeEngine) Backlog() stats.BacklogView {
	return stats.BacklogView{
		Counted: &began, Waiting: 3, AgeS: 1.5,
		Parked: []stats.ParkedRuns{
			{Pipeline: "new-order-created", Reason: stats.ParkedService, For: "orders", Runs: 651, Since: began, AgeS: 75},
			{Pipeline: "new-order-created", Reason: stats.ParkedFailed, Runs: 2, Since: began, AgeS: 75},
		},
		Refused: []credentials.Refused{{Token: "shop", Items: 40, Since: began}},
	}
}

func (f *fakeEngine) Healthy(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return errors.New("the store does not answer")
	}
	return nil
}

func (f *fakeEngine) Assignment(ctx context.Context, cluster string) (clusters.Assignment, error) {
	if err := f.Healthy(ctx); err != nil {
		return clusters.Assignment{}, err
	}
	return f.clusters.Assignment(ctx, cluster)
}

func (f *fakeEngine) AwaitAssignment(ctx context.Context, cluster string, after int64) (clusters.Assignment, error) {
	return f.clusters.AwaitAssignment(ctx, cluster, after)
}

// transferring is the only transfer of the fake.
var transferring = transfers.ShardTransfer{
	ID: "t_1", Map: "mail", Key: "42", Source: "s1", Target: "s2", Method: "stream", Run: "t-1", Lane: "mail/00",
	State: transfers.TransferRunning, Step: "copy", Rows: 640, Total: 1000, Percent: 64, Started: began, Changed: began,
}

func (f *fakeEngine) ShardTransfers(_ context.Context, shardMap string) ([]transfers.ShardTransfer, error) {
	if f.down {
		return nil, errDown
	}
	if shardMap != transferring.Map {
		return []transfers.ShardTransfer{}, nil
	}
	return []transfers.ShardTransfer{transferring}, nil
}

func (f *fakeEngine) RunStatus(context.Context, string) (model.Status, error) {
	return model.Parked, nil
}

func (f *fakeEngine) WakeRun(context.Context, string) error { return nil }

func (f *fakeEngine) Supersede(_ context.Context, _ string, retried []store.TaskRetry, by store.Actor) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range retried {
		f.actors = append(f.actors, by)
	}
	return nil
}

func (f *fakeEngine) OrderShardTransfer(_ context.Context, id, want string, by store.Actor) (transfers.ShardTransfer, error) {
	switch {
	case f.down:
		return transfers.ShardTransfer{}, errDown
	case id != transferring.ID:
		return transfers.ShardTransfer{}, fmt.Errorf("transfer %q: %w", id, store.ErrNotFound)
	case want == transfers.OrderRollback:
		return transferring, fmt.Errorf("%w: it has not switched", transfers.ErrShardOrder)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.actors = append(f.actors, by)
	return transferring, nil
}

func (f *fakeEngine) ClusterStatus(ctx context.Context, cluster string) (clusters.ClusterStatus, error) {
	if err := f.Healthy(ctx); err != nil {
		return clusters.ClusterStatus{}, err
	}
	return f.clusters.ClusterStatus(ctx, cluster)
}

func (f *fakeEngine) TickFailure(ctx context.Context, cluster string) (*clusters.TickFailure, error) {
	return f.clusters.TickFailure(ctx, cluster)
}

func (f *fakeEngine) ClusterMoves(ctx context.Context, cluster string) ([]clusters.MoveLog, error) {
	return f.clusters.ClusterMoves(ctx, cluster)
}

func (f *fakeEngine) ClusterRecording(ctx context.Context, cluster string) (clusters.Recording, error) {
	return f.clusters.ClusterRecording(ctx, cluster)
}

func (f *fakeEngine) ExplainPartition(ctx context.Context, cluster string, partition int) (clusters.PartitionView, error) {
	return f.clusters.ExplainPartition(ctx, cluster, partition)
}

func (f *fakeEngine) PullLever(ctx context.Context, cluster string, pull clusters.LeverPull,
	by store.Actor,
) (clusters.Levers, error) {
	return f.clusters.PullLever(ctx, cluster, pull, by)
}

// Recorded reports the runs that have ended as if all of them were recorded.
func (f *fakeEngine) Recorded(ctx context.Context, filter store.RunFilter) ([]records.Recorded, string, error) {
	filter.Oldest = true
	runs, next, err := f.List(ctx, filter)
	out := []records.Recorded{}
	for _, r := range runs {
		if r.Status.Ended() {
			out = append(out, records.Recorded{RunView: r, State: "created", Recording: checkpoint.RunRecording{
				Configs: json.RawMessage(`{"NOTIFY_SWITCH":{"enabled":true}}`),
				Calls: []checkpoint.RecordedCall{{
					Ref: r.Pipeline + "/fetch-order/get-order", Attempt: 1, Took: 5 * time.Millisecond, Status: 200,
					Response: json.RawMessage(`{"id":"o-1"}`),
				}},
			}})
		}
	}
	return out, next, err
}
