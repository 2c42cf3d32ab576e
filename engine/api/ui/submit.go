package ui

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
	"procaas/engine/api/ui/fields"
	"procaas/engine/checkpoint"
	"procaas/engine/credentials"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/store"
)

type submitData struct {
	Tasks   []task
	More    bool // there are more tasks
	Types   []eventType
	Form    *eventForm // of the type that was chosen; nil before
	Views   bool       // the reader may look at runs
	Done    string     // the run of what was submitted, for who may not look at it
	Refused string     // why the reader may submit nothing
}

// A task is a run that waits for an event, which a person may submit.
type task struct {
	Run    checkpoint.RunView
	Path   string // of the handler that waits
	Events []string
	Where  string // what else must hold; empty for nothing
	Owner  string
	At     checkpoint.HandlerView
}

// An eventType is one that somebody may submit.
type eventType struct {
	Type    string
	Serves  []string // the pipelines that it starts, or that wait for it
	Waits   bool     // it starts none
	Schema  bool     // a schema says what is in it
	Sends   string   // who owns it
	Refused bool     // the reader may not submit it
}

// An eventForm is an event that somebody fills in.
type eventForm struct {
	Type   eventType
	ID     string // of the event: pressing a button twice submits it once
	Key    string
	AsksID bool // the key is not read from the payload
	JSON   bool // the payload is written as JSON
	Free   bool // no schema says what it is
	Field  fields.Field
	Reason string
	Task   *task
	Last   []checkpoint.RunView // that such events have started
	Faults []fault              // that have no field
	Query  string               // the address of the form, without how it is filled in
}

// A fault is what the API finds wrong.
type fault struct {
	Location string `json:"location"`
	Message  string `json:"message"`
}

// Bounds of the page.
const (
	shownTasks = 50
	shownLast  = 5
	lookedLast = 50 // runs among which the last events of a type are looked for
)

// payloadName is the pointer of the payload in an event of the plain form.
const payloadName = "/payload"

// submission are the pages on which people submit events.
type submission struct{ *Console }

// submitPage shows what may be submitted, and the runs that wait for an event.
func (c submission) submitPage(w http.ResponseWriter, r *http.Request) error {
	d, err := c.submitData(r)
	if err != nil {
		return err
	}
	if d.Form != nil {
		value, given, err := c.example(r, d.Form)
		if err != nil {
			return err
		}
		d.Form.fill(c.outlineOf(d.Form.Type.Type), value, given, nil, "")
		c.show(w, r, http.StatusOK, "event", d.Form.Type.Type, d)
		return nil
	}
	d.Done = r.FormValue("done")
	c.show(w, r, http.StatusOK, "submit", "Submit", d)
	return nil
}

func (c submission) submitData(r *http.Request) (d submitData, err error) {
	g := c.o.Caller(r)
	d.Views = g.Has(credentials.RoleViewer)
	if !g.Has(credentials.RoleSubmitter) {
		d.Refused = "Your token allows you to read, and not to submit events."
	}
	d.Types = c.eventTypes(g)
	if name := r.FormValue("type"); name != "" {
		i := slices.IndexFunc(d.Types, func(t eventType) bool { return t.Type == name })
		if i < 0 {
			var known []string
			for _, t := range d.Types {
				known = append(known, t.Type)
			}
			return d, Unknown("event type", name, known)
		}
		d.Form, err = c.eventForm(r, d.Types[i], d.Views)
		return d, err
	}
	if !d.Views {
		return d, nil
	}
	runs, next, err := c.o.Engine.List(r.Context(), store.RunFilter{Awaits: true, Oldest: true, Brief: true, Limit: shownTasks})
	d.More = next != ""
	for _, run := range runs {
		if t := c.taskOf(run); t != nil {
			d.Tasks = append(d.Tasks, *t)
		}
	}
	return d, err
}

// eventTypes lists all that anything listens to.
func (c submission) eventTypes(g credentials.Grant) (all []eventType) {
	b := c.o.Engine.Bundle()
	names := map[string]bool{}
	for name := range b.Index.Serving {
		names[name] = true
	}
	for name := range b.Index.Awaiting {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		t := eventType{Type: name, Waits: len(b.On(name)) == 0, Schema: c.outlineOf(name) != nil}
		for _, p := range slices.Concat(b.On(name), b.Awaiting(name)) {
			t.Serves = append(t.Serves, p.ID)
			t.Refused = t.Refused || !g.Covers(p.ID)
		}
		t.Serves = slices.Compact(slices.Sorted(slices.Values(t.Serves)))
		if e := b.Event(name); e != nil {
			t.Sends = e.Owner
		}
		all = append(all, t)
	}
	return all
}

func (c *Console) outlineOf(eventType string) *typing.Outline {
	return c.o.Engine.Bundle().Event(eventType).Contract().Outline()
}

// taskOf returns what a run waits for; nil when it waits for no event.
func (c *Console) taskOf(run checkpoint.RunView) *task {
	for _, h := range run.Handlers {
		if h.Outcome != "waiting" || run.Finished != nil {
			continue
		}
		defined := c.o.Engine.Bundle().Handler(h.Path)
		if defined == nil || defined.Await == nil {
			continue
		}
		t := &task{Run: run, Path: h.Path, Events: defined.Await.Event, Owner: defined.Owner, At: h}
		if v := defined.Await.Where; v != nil && v.Kind == expr.ValueExpr {
			t.Where = v.Computed.Source
		}
		return t
	}
	return nil
}

// eventForm makes the form of a type of events, still empty.
func (c submission) eventForm(r *http.Request, t eventType, views bool) (*eventForm, error) {
	f := &eventForm{
		Type: t, ID: cmp.Or(r.PostFormValue("id"), intake.NewID()), Key: r.FormValue("key"), Reason: r.PostFormValue("reason"),
		JSON: r.FormValue("as") == "json",
	}
	b := c.o.Engine.Bundle()
	flow := c.flowOf(t.Type)
	f.AsksID = flow == nil || flow.Key.IsNull()
	f.Query = "?" + url.Values{"type": {t.Type}, "key": {f.Key}, "run": {r.FormValue("run")}, "from": {r.FormValue("from")}}.Encode()
	if !views {
		return f, nil
	}
	if id := r.FormValue("run"); id != "" {
		run, err := c.o.Engine.RunByID(r.Context(), id)
		if err != nil {
			return nil, err
		}
		f.Task = c.taskOf(run)
		if f.Task != nil {
			f.Key = run.Key
		}
	}
	filter := store.RunFilter{Limit: lookedLast, Brief: true}
	if served := b.On(t.Type); len(served) > 0 {
		filter.Pipeline = served[0].ID
	} else if flow != nil {
		filter.Flow = flow.ID
	} else {
		return f, nil
	}
	runs, _, err := c.o.Engine.List(r.Context(), filter)
	for _, run := range runs {
		if run.Event.Type == t.Type && len(f.Last) < shownLast {
			f.Last = append(f.Last, run)
		}
	}
	return f, err
}

// flowOf is the flow of events of a type; nil for none.
func (c *Console) flowOf(eventType string) *tree.Flow {
	b := c.o.Engine.Bundle()
	for _, p := range slices.Concat(b.On(eventType), b.Awaiting(eventType)) {
		return b.Flow(p.Flow)
	}
	return nil
}

// example is what a form begins with: the payload of an earlier event, or what is known of one that a run waits for.
func (c submission) example(r *http.Request, f *eventForm) (value any, given bool, err error) {
	if id := r.FormValue("from"); id != "" && c.o.Caller(r).Has(credentials.RoleViewer) {
		run, err := c.o.Engine.RunByID(r.Context(), id)
		return run.Event.Payload, err == nil, err
	}
	o := c.outlineOf(f.Type.Type)
	members := map[string]any{}
	if f.Task != nil && o != nil {
		// What both events have in common, by name and type, is likely the same.
		payload, _ := f.Task.Run.Event.Payload.(map[string]any)
		for name, v := range payload {
			if of := o.Members[name]; of != nil && of.Types()&datum.ShapeOfValue(v) != 0 && fields.Shows(of.Outline, v, 1) {
				members[name] = v
			}
		}
	}
	if flow := c.flowOf(f.Type.Type); flow != nil && f.Key != "" {
		setKey(members, flow.Key.Reads(), f.Key)
	}
	return members, len(members) > 0, nil
}

// setKey puts a key where a flow reads it, if that is one place.
func setKey(members map[string]any, reads []datum.Read, key string) {
	if len(reads) != 1 || len(reads[0].Path) < 3 || reads[0].Path[1] != "payload" {
		return
	}
	path := reads[0].Path[2:]
	for _, name := range path[:len(path)-1] {
		next := map[string]any{}
		members[name], members = next, next
	}
	members[path[len(path)-1]] = key
}

// fill makes the fields. What the form cannot show is written as JSON.
func (f *eventForm) fill(o *typing.Outline, value any, given bool, faults map[string]string, more string) {
	f.Free = fields.KindOf(o, 0) == "json"
	f.JSON = f.JSON || f.Free || given && !fields.Shows(o, value, 0)
	if f.JSON {
		o = nil
	}
	m := fields.FormMaker{Faults: faults, More: more}
	f.Field = m.Field(payloadName, "payload", o, true, value, given, 0)
	for _, name := range slices.Sorted(maps.Keys(m.Faults)) {
		f.Faults = append(f.Faults, fault{strings.TrimPrefix(name, "/"), m.Faults[name]})
	}
}

// submit hands in what was filled in, or shows what is wrong with it at its field.
func (c submission) submit(w http.ResponseWriter, r *http.Request) error {
	d, err := c.submitData(r)
	if err != nil {
		return err
	}
	if d.Form == nil {
		return &Refused{http.StatusBadRequest, "The form is damaged: it does not say which event it is."}
	}
	f, o := d.Form, c.outlineOf(d.Form.Type.Type)
	var value any
	var given bool
	if f.JSON {
		value, given = fields.ReadField(r.PostForm, payloadName, nil, false, 0)
	} else {
		value, given = fields.ReadField(r.PostForm, payloadName, o, true, 0)
	}
	faults := map[string]string{}
	fields.UnreadAt(payloadName, value, faults)
	status := http.StatusOK
	more := r.PostFormValue("more")
	if more == "" && len(faults) == 0 {
		run, refused, err := c.handIn(r, f, value)
		if err != nil {
			return err
		}
		if refused == nil {
			to := Root + "runs/" + cmp.Or(r.FormValue("run"), run)
			if !d.Views {
				to = SubmitPage + "?done=" + url.QueryEscape(run)
			}
			http.Redirect(w, r, to, http.StatusSeeOther)
			return nil
		}
		status = refused.Status
		for _, at := range refused.Errors {
			faults[at.Location] = at.Message
		}
		if len(faults) == 0 {
			faults[""] = refused.Detail
		}
		f.ID = intake.NewID() // what is submitted then is another event
	} else if len(faults) > 0 {
		status = http.StatusUnprocessableEntity
	}
	f.fill(o, value, given, faults, more)
	c.show(w, r, status, "event", f.Type.Type, d)
	return nil
}

// A refusal is a problem of the API.
type refusal struct {
	Status int     `json:"status"`
	Detail string  `json:"detail"`
	Errors []fault `json:"errors"`
}

// handIn submits an event, and notes who did so.
func (c submission) handIn(r *http.Request, f *eventForm, payload any) (run string, refused *refusal, err error) {
	by := c.by(r)
	event := map[string]any{"type": f.Type.Type, "id": f.ID, "source": model.ConsoleSource + by.Name, "payload": payload}
	if f.AsksID && f.Key != "" {
		event["key"] = f.Key
	}
	data, err := datum.FormatKinds(event)
	if err != nil {
		return "", &refusal{Status: http.StatusUnprocessableEntity, Detail: err.Error()}, nil
	}
	status, reply := c.o.Submit(r, data)
	if status >= http.StatusBadRequest {
		refused = &refusal{Status: status}
		return "", refused, json.Unmarshal(reply, refused)
	}
	var receipt model.Receipt
	if err := json.Unmarshal(reply, &receipt); err != nil {
		return "", nil, err
	}
	if !receipt.Duplicate {
		e := records.AuditedEvent{Type: f.Type.Type, ID: f.ID, Source: model.ConsoleSource + by.Name}
		if err := c.o.Engine.NoteEvent(r.Context(), receipt.Run, e, by); err != nil {
			c.o.Log.Error("event is submitted, and the audit does not say so", "run", receipt.Run, "by", by.Name, "error", err)
		}
	}
	return receipt.Run, nil, nil
}
