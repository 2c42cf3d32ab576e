package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/intake"
	"procaas/engine/memory"
	"procaas/engine/model"
	"procaas/engine/store"
)

// A strict inbox refuses a transaction with a bad event as a whole, as a database does.
type strictInbox struct{ store.Inbox }

// Accept implements [store.Inbox].
func (p strictInbox) Accept(ctx context.Context, node int64, runs []model.Intake) ([]store.Accepted, error) {
	for _, r := range runs {
		if data, ok := r.Event.Payload.(map[string]any); ok && data["bad"] == true {
			return nil, fmt.Errorf("%w: invalid byte sequence", store.ErrRefused)
		}
	}
	return p.Inbox.Accept(ctx, node, runs)
}

func TestABadEventOfABatchFailsAlone(t *testing.T) {
	t.Parallel()
	db := memory.New(nil).Ports()
	db.Inbox = strictInbox{db.Inbox}
	e, err := engine.New(engine.Options{Store: db, Bundle: enginetest.Load(t, "pipelines: [{id: work, stages: []}]")})
	if err != nil {
		t.Fatal(err)
	}
	var events []intake.Submission
	for i := range 100 {
		events = append(events, intake.Submission{Event: model.Event{
			ID: fmt.Sprint("e-", i), Source: "s", Type: "work", Payload: map[string]any{"bad": i == 37},
		}})
	}
	out, err := e.Submit(t.Context(), events)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range out {
		var refused *intake.Error
		switch {
		case i == 37 && (!errors.As(r.Err, &refused) || refused.Code != "invalid_event"):
			t.Errorf("want the bad event refused with the reason, have %+v", r)
		case i != 37 && (r.Err != nil || r.Receipt.Run == ""):
			t.Errorf("want event %d accepted, have %+v", i, r)
		}
	}
}
