package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"procaas/engine/api"
	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
	"procaas/engine/enginetest/patience"
	"procaas/engine/store"
	queueremote "procaas/handlers/queue/remote"
)

// A task of a mistyped type is taken in, and its sender told; once somebody asks for the
// type, there is nothing to tell any more.
func TestTasksThatNobodyAsksForAreWarnedOf(t *testing.T) {
	t.Parallel()
	s := newTaskServer(t, api.Options{})
	s.claim(`{"worker": "w1", "types": [{"type": "thumbnails"}]}`)
	var one queueremote.TaskReceipt
	s.call(http.MethodPost, "/v1/queues/thumbnials/tasks", `{}`, 202, &one)
	for _, want := range []string{`"thumbnials"`, "nobody has asked", `did you mean "thumbnails"?`} {
		if !strings.Contains(one.Warning, want) || one.ID == "" {
			t.Errorf("have %+v, want it taken in with a warning of %s", one, want)
		}
	}
	var many queueremote.TaskReceipts
	s.call(http.MethodPost, "/v1/queues/thumbnials/tasks", `[{}, {}]`, 202, &many)
	if many.Warning == "" || len(many.Tasks) != 2 || many.Tasks[0].Warning != "" {
		t.Errorf("have %+v, want one warning of all", many)
	}
	one = queueremote.TaskReceipt{}
	s.call(http.MethodPost, "/v1/queues/thumbnails/tasks", `{}`, 202, &one)
	if one.Warning != "" {
		t.Errorf("have %q of a type that is asked for", one.Warning)
	}
	var stats wire.Page[queueremote.QueueStats]
	s.call(http.MethodGet, "/v1/queues", "", 200, &stats)
	if len(stats.Items) != 2 || stats.Items[0].Asked == nil || stats.Items[0].AskedBy != "w1" || stats.Items[1].Asked != nil {
		t.Errorf("have %+v, want to see that only the first was asked for", stats.Items)
	}
	s.claim(`{"worker": "w1", "types": [{"type": "thumbnials"}]}`)
	s.eventually(func() error { // what is not known is taken for false for a moment
		one = queueremote.TaskReceipt{}
		s.call(http.MethodPost, "/v1/queues/thumbnials/tasks", `{}`, 202, &one)
		if one.Warning != "" {
			return errors.New(one.Warning)
		}
		return nil
	})
}

// eventually tries something until it works.
func (s *taskServer) eventually(try func() error) {
	s.Helper()
	for over := patience.Over(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if over() {
			s.Fatal(err)
		}
	}
}

func TestStrictQueuesRefuseTypesThatNobodyAsksFor(t *testing.T) {
	t.Parallel()
	s := newTaskServer(t, api.Options{}, true)
	if err := s.tasks.Admin.SetTaskMode(t.Context(), "opened", store.TasksOpen, ""); err != nil {
		t.Fatal(err)
	}
	s.claim(`{"worker": "w1", "types": [{"type": "asked"}]}`)
	for kind, status := range map[string]int{"asked": 202, "opened": 202, "askde": 404} {
		var p problem.Problem
		s.call(http.MethodPost, "/v1/queues/"+kind+"/tasks", `{}`, status, &p)
		if status == 404 && (p.Code != "unknown_task_type" || !strings.Contains(p.Detail, `did you mean "asked"?`)) {
			t.Errorf("have %+v, want it to name what there is", p)
		}
	}
	if left, err := s.tasks.Admin.PeekTasks(t.Context(), store.TaskFilter{Type: "askde"}); err != nil || len(left) != 0 {
		t.Errorf("have %+v, %v, want nothing taken in", left, err)
	}
}

// A mistyped type is an error, and nothing is done. To open one makes it known.
func TestUnheardTypesAreRefused(t *testing.T) {
	t.Parallel()
	s := newTaskServer(t, api.Options{})
	s.call(http.MethodPost, "/v1/queues/letters/tasks", `{}`, 202, nil)
	refused := func(method, path, body string) {
		t.Helper()
		var p problem.Problem
		s.call(method, path, body, 404, &p)
		if p.Code != "unknown_task_type" || !strings.Contains(p.Detail, `did you mean "letters"?`) {
			t.Errorf("%s %s: have %+v", method, path, p)
		}
	}
	for _, verb := range []string{"retry", "cancel"} {
		s.call(http.MethodPost, "/admin/v1/queues/letters/"+verb, `{"key": "none"}`, 200, nil)
		refused(http.MethodPost, "/admin/v1/queues/lettres/"+verb, `{"key": "none"}`)
	}
	for _, mode := range []string{"paused", "draining"} {
		refused(http.MethodPut, "/admin/v1/queues/lettres", `{"mode": "`+mode+`"}`)
	}
	s.call(http.MethodGet, "/v1/queues/letters/tasks?state=failed", "", 200, nil)
	refused(http.MethodGet, "/v1/queues/lettres/tasks", "")
	s.call(http.MethodPut, "/admin/v1/queues/letters", `{"mode": "paused"}`, 200, nil)
	var moved queueremote.TasksChanged
	s.call(http.MethodPost, "/admin/v1/queues/letters/move", `{"to": "lettres"}`, 200, &moved)
	if moved.Changed != 1 || !strings.Contains(moved.Warning, `did you mean "letters"?`) {
		t.Errorf("want a warning of the type that the task has now, have %+v", moved)
	}
	var opened queueremote.QueueChanged
	s.call(http.MethodPut, "/admin/v1/queues/letrtes", `{"mode": "open"}`, 200, &opened)
	if opened.Mode != "open" || opened.Warning == "" {
		t.Errorf("want it opened with a warning, have %+v", opened)
	}
}

// A store that cannot tell who asks for what is no reason to refuse a task, unless only
// known types may be put.
func TestTasksArePutThoughItIsNotKnownWhoAsks(t *testing.T) {
	t.Parallel()
	for strict, status := range map[bool]int{false: 202, true: 503} {
		t.Run(fmt.Sprint("strict ", strict), func(t *testing.T) {
			t.Parallel()
			s := newTaskServer(t, api.Options{}, strict)
			db := *s.tasks
			db.Admin = unknowing{db.Admin}
			s.handler = api.New(withProducts(newFake(taxi(t)), api.Options{}, products{tasks: &db, strict: strict}))
			s.call(http.MethodPost, "/v1/queues/any/tasks", `{}`, status, nil)
		})
	}
}

// An unknowing admin does not tell which types are asked for.
type unknowing struct{ store.TaskAdmin }

func (unknowing) KnownTaskTypes(context.Context) ([]string, error) {
	return nil, errors.New("the table is away")
}

// Names of types are for anybody to invent, and each has its figures and metrics.
func TestTypesThatNobodyDoesAreBounded(t *testing.T) {
	t.Parallel()
	s := newTaskServer(t, api.Options{})
	s.claim(`{"worker": "w1", "types": [{"type": "asked"}]}`)
	specs := make([]store.TaskSpec, 1000)
	for i := range specs {
		specs[i] = store.TaskSpec{Type: fmt.Sprint("invented-", i), Payload: []byte("null")}
	}
	if _, err := s.tasks.Queue.PutTasks(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	for kind, status := range map[string]int{"invented-7": 202, "one-more": 404, "asked": 202} {
		var p problem.Problem
		s.call(http.MethodPost, "/v1/queues/"+kind+"/tasks", `{}`, status, &p)
		if status == 404 && !strings.Contains(p.Detail, "there are tasks of 1000 such types already") {
			t.Errorf("have %+v, want it to say why", p)
		}
	}
}
