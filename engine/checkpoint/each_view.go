package checkpoint

import (
	"fmt"
	"strings"

	"procaas/engine/model"
)

// counts counts the items of a handler for people.
func (e *Each) counts() *ItemsView {
	if e == nil {
		return nil
	}
	if e.Items == nil {
		return &ItemsView{Total: e.Total, Succeeded: e.Succeeded, Failed: e.Failed}
	}
	v := &ItemsView{Total: e.Total}
	if done, err := ReadNumbers(e.Done, e.Total); err == nil {
		v.Succeeded = len(done)
	}
	for _, item := range e.Of {
		switch {
		case item.Outcome == model.OutcomeSucceeded:
			v.Succeeded++
		case item.Outcome == model.OutcomeFailed:
			v.Failed++
			if len(v.Errors) < maxItemErrors {
				v.Errors = append(v.Errors, ItemError{Item: item.Item - 1, Error: item.Error})
			}
		case item.Outcome == "" && item.Attempts > 0 && item.Due.IsZero():
			v.Running++
		}
	}
	v.Waiting = v.Total - v.Succeeded - v.Failed - v.Running
	return v
}

// running reports whether a call of an item is in flight.
func (e *Each) running() bool {
	v := e.counts()
	return v != nil && v.Running > 0
}

// maxItemErrors is how many errors of items are shown.
const maxItemErrors = 10

// An ItemsView is the progress of a for-each.
type ItemsView struct {
	Total     int         `json:"total"`
	Succeeded int         `json:"succeeded"`
	Failed    int         `json:"failed"`
	Running   int         `json:"running"`
	Waiting   int         `json:"waiting"` // for a turn, or for a time
	Errors    []ItemError `json:"errors,omitempty"`
}

// An ItemError is why an item has failed.
type ItemError struct {
	Item  int    `json:"item"` // its index, from 0
	Error string `json:"error"`
}

// String shows the counts in one line.
func (v *ItemsView) String() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{v.Succeeded, "done"}, {v.Failed, "failed"}, {v.Running, "running"}, {v.Waiting, "waiting"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	switch {
	case v.Total == 0:
		return "no items"
	case len(parts) == 0:
		parts = []string{"none begun"}
	}
	return fmt.Sprintf("%d items: %s", v.Total, strings.Join(parts, ", "))
}
