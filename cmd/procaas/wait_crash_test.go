package main

import (
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"sync"
	"testing"
	"time"

	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
)

const answering = `
services: [{id: push, url: URL}]
pipelines:
  - id: work
    outputs: {n: !$ event.payload.n, by: !$ sources.tell.status}
    stages:
      - {id: s, handlers: [{id: tell, timeout: 10m, deadline: 10m, request: {service: push, path: /, method: POST, headers: {X-Run: !$ event.id}}}]}
`

// TestWaitSurvivesKill9 kills a serving node while its run is in flight. A client that waits for the
// run on another node gets the end that this one brings it to, and so does the sender who sends
// the event again.
func TestWaitSurvivesKill9(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 3*time.Minute)
	defer cancel()
	push := &pushService{keys: map[string]map[string]int{}, answered: map[string]int{}}
	service := httptest.NewServer(push)
	defer service.CloseClientConnections()
	store := enginetest.MigratedPostgres(t)
	one, two := newCrashing(t, store, answering, service.URL), newCrashing(t, store, answering, service.URL)
	two.pipelines = one.pipelines
	first := one.start(ctx)

	// The first node has the run, and the service leaves its call without an answer.
	event := wire.Event{Type: "work", ID: "held", Source: "test", Payload: map[string]any{"n": 7}}
	receipt, err := one.client.SubmitEvent(ctx, event)
	if err != nil {
		t.Fatal(err)
	}
	for _, stuck := push.seen(); stuck == 0; _, stuck = push.seen() {
		if !clock.Pause(ctx, 10*time.Millisecond) {
			t.Fatal("the call has not begun")
		}
	}
	two.start(ctx)
	body, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	for range 20 {
		waiting.Go(func() {
			run, err := two.client.AwaitRun(ctx, receipt.Run, rest.MaxWait)
			for err == nil && !run.Status.Ended() { // the machine is busy: one asks again, as callers do
				run, err = two.client.AwaitRun(ctx, receipt.Run, rest.MaxWait)
			}
			if err != nil || run.Status != model.Succeeded {
				t.Errorf("want the end of the run, have %s: %v", run.Status, err)
				return
			}
			if later, err := two.client.Run(ctx, receipt.Run); err != nil || !reflect.DeepEqual(run, later) {
				t.Errorf("want what is read later, %+v, have %+v: %v", later, run, err)
			}
		})
		waiting.Go(func() {
			result, _, err := two.client.SubmitAndWait(ctx, body, rest.MaxWait)
			for err == nil && !model.Status(result.Status).Ended() {
				result, _, err = two.client.SubmitAndWait(ctx, body, rest.MaxWait)
			}
			if err != nil || !result.Duplicate || result.Run != receipt.Run || result.Status != string(model.Succeeded) || result.Outputs["n"] != 7.0 {
				t.Errorf("want the result of the run that exists, have %+v: %v", result, err)
			}
		})
	}
	follows := make(chan bool, 1) // somebody follows the run on the second node
	waiting.Go(func() {
		err := two.client.FollowRun(ctx, receipt.Run, func(v checkpoint.RunView, ended bool) error {
			select {
			case follows <- true:
			default:
			}
			if ended && (v.Status != model.Succeeded || v.Outputs == nil) {
				t.Errorf("want the end of the run, have %+v", v)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	select {
	case <-follows:
	case <-ctx.Done():
		t.Fatal("nobody follows the run")
	}
	push.mu.Lock()
	push.free = true
	push.mu.Unlock()
	first.kill()
	waiting.Wait()
}
