package runview_test

import (
	"strings"
	"testing"
	"time"

	"procaas/cmd/procaas/internal/runview"
	"procaas/engine/api/cli"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
)

// A call that a crash cut off has not succeeded: nobody knows.
func TestTreeMarksEachOutcome(t *testing.T) {
	t.Parallel()
	for have, want := range map[checkpoint.HandlerView]string{
		{Outcome: model.OutcomeSucceeded, Attempts: 1}:                          "✓ get",
		{Outcome: model.OutcomeFailed, Attempts: 1, Error: "503"}:               "✗ get failed, 503",
		{Outcome: model.OutcomeRunning, Attempts: 1}:                            "… get running",
		{Outcome: model.OutcomeUnknown, Attempts: 2, Reason: "its node died"}:   "? get 2 attempts, sent, answer unknown, its node died",
		{Outcome: model.OutcomeWaiting, Reason: "hold: push is slow"}:           "… get waiting, hold: push is slow",
		{Outcome: model.OutcomeSkipped, Reason: "its condition enabled is off"}: "– get skipped, its condition enabled is off",
	} {
		var out strings.Builder
		have.Path = "work/s/get"
		(&runview.Tree{W: &out}).Show(checkpoint.RunView{Handlers: []checkpoint.HandlerView{have}})
		if _, line, _ := strings.Cut(out.String(), "│  "); strings.TrimSpace(line) != want {
			t.Errorf("have %q, want %q", line, want)
		}
	}
}

// Parked says little: the line names the handler and the time.
func TestParkedRunsSayWhatTheyWaitFor(t *testing.T) {
	t.Parallel()
	due := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	var out strings.Builder
	err := runview.Print(cli.Streams{Out: &out}, checkpoint.RunView{
		Pipeline: "work", Key: "o-1", Status: model.Parked,
		Handlers: []checkpoint.HandlerView{{Path: "work/s/nap", Outcome: model.OutcomeWaiting, Due: &due}},
	})
	want := "work o-1: parked, work/s/nap waits until 2026-01-02 03:04:05\n"
	if err != nil || !strings.HasPrefix(out.String(), want) {
		t.Errorf("have %s, %v, want %s", out.String(), err, want)
	}
}
