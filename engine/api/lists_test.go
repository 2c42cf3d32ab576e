package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"procaas/engine/api"
	"procaas/engine/api/wire"
	"procaas/engine/records"
	"procaas/engine/store"
	queueremote "procaas/handlers/queue/remote"
)

// TestPagesOfTheAuditAreBoundedByBytes asks for more than a page may hold, and goes on to the
// end.
func TestPagesOfTheAuditAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	for i := range 40 {
		f.audit = append(f.audit, records.AuditView{Kind: store.AuditConfig, Name: fmt.Sprint(i), After: strings.Repeat("x", 1<<(i%20+1))})
	}
	h := api.New(withProducts(f, api.Options{}))
	var names []string
	for path := "/admin/v1/audit?limit=33"; ; {
		w := get(h, path)
		var page wire.Page[records.AuditView]
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || len(page.Items) == 0 || len(page.Items) > 33 || w.Body.Len() > 10<<20 {
			t.Fatalf("have %d with %d items in %d bytes: %v", w.Code, len(page.Items), w.Body.Len(), err)
		}
		for _, v := range page.Items {
			names = append(names, v.Name)
		}
		if page.Next == nil {
			break
		}
		path = "/admin/v1/audit?limit=33&cursor=" + *page.Next
	}
	slices.Reverse(names)
	for i, name := range names {
		if name != fmt.Sprint(i) {
			t.Fatalf("have %v, want each change once, in order", names)
		}
	}
	if len(names) != 40 {
		t.Errorf("have %d changes, want 40", len(names))
	}
}

// TestListOfTasksLeavesLargePayloadsOut still has them by the ids of their tasks.
func TestListOfTasksLeavesLargePayloadsOut(t *testing.T) {
	t.Parallel()
	s := newTaskServer(t, api.Options{})
	var put queueremote.TaskReceipts
	s.call("POST", "/v1/queues/thumbs/tasks", `[{"payload": "small"}, {"payload": "`+strings.Repeat("x", 100_000)+`"}]`, 202, &put)
	var list, one wire.Page[queueremote.QueuedTask]
	s.call("GET", "/v1/queues/thumbs/tasks", "", 200, &list)
	if len(list.Items) != 2 || string(list.Items[0].Payload) != `"small"` || list.Items[1].Payload != nil {
		t.Errorf("have %.300v", list.Items)
	}
	s.call("GET", "/v1/queues/thumbs/tasks?id="+put.Tasks[1].ID, "", 200, &one)
	if len(one.Items) != 1 || len(one.Items[0].Payload) != 100_002 {
		t.Errorf("have %.300v", one.Items)
	}
}
