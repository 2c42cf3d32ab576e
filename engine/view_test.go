package engine_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/store"
)

const viewCheckpoint = `{"v":1,"pipeline":"p","began":"2026-01-02T03:04:05Z","stage":1,
	"shared_state":{"n":9007199254740993},"handlers":[
	{"path":"p/s/a","outcome":"succeeded","attempts":2,"failures":1,"started":"2026-01-02T03:04:05Z","finished":"2026-01-02T03:04:06Z"},
	{"path":"p/t/b","attempts":1,"started":"2026-01-02T03:04:06Z"},
	{"path":"p/t/c","attempts":1,"failures":1,"due":"2026-01-02T03:05:00Z","error":"503"},
	{"path":"p/t/d","reason":"rate limit"},
	{"path":"p/t/e","outcome":"skipped","finished":"2026-01-02T03:04:06Z","reason":"switched off"}]}`

func TestViewTellsWhatBecameOfEachHandler(t *testing.T) {
	t.Parallel()
	for status, want := range map[model.Status]string{
		model.Running:   "succeeded running waiting waiting skipped",
		model.Parked:    "succeeded waiting waiting waiting skipped",
		model.Failed:    "succeeded unknown unknown unknown skipped",
		model.Cancelled: "succeeded unknown unknown unknown skipped",
	} {
		v := records.View(store.RunRecord{Status: status, Checkpoint: []byte(viewCheckpoint)})
		var have []string
		for _, h := range v.Handlers {
			have = append(have, h.Outcome)
		}
		if got := strings.Join(have, " "); got != want {
			t.Errorf("%s: have %s, want %s", status, got, want)
		}
		if d := cmp.Diff(map[string]any{"n": 9007199254740993}, v.SharedState); d != "" {
			t.Errorf("%s: shared state (- want, + have):\n%s", status, d)
		}
		if v.Handlers[3].Started != nil || v.Handlers[0].Finished == nil {
			t.Errorf("%s: want times exactly where they are known, have %+v", status, v.Handlers)
		}
	}
}

func TestViewOfARunWithoutCheckpoint(t *testing.T) {
	t.Parallel()
	v := records.View(store.RunRecord{ID: "r1", Status: model.Waiting, Flow: "f", Key: "k", Due: time.Unix(1, 0)})
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"shared_state":{}`, `"handlers":[]`, `"started":null`, `"finished":null`, `"due":"1970`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("have %s, want %s in it", text, want)
		}
	}
}

func TestViewNeverLosesAnUnreadableCheckpoint(t *testing.T) {
	t.Parallel()
	for _, checkpoint := range []string{"{", `{"v":4}`, `{"v":1,"shared_state":{"n":1e999}}`} {
		v := records.View(store.RunRecord{Status: model.Failed, Error: "p/s/a: no", Checkpoint: []byte(checkpoint)})
		if !strings.HasPrefix(v.Error, "p/s/a: no; read checkpoint: ") || v.SharedState == nil || v.Handlers == nil {
			t.Errorf("%s: have %q, want the run's error and what is wrong with the checkpoint", checkpoint, v.Error)
		}
	}
}
