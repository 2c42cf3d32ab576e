package enginetest_test

import (
	"slices"
	"testing"

	"procaas/engine/enginetest"
)

// The checker is trusted by other tests, so it must see each broken promise.
func TestHistoryCheckSeesEachBrokenPromise(t *testing.T) {
	t.Parallel()
	type history = enginetest.History
	for want, tell := range map[string]func(h *history){
		"": func(h *history) {
			h.Called("r1", "p/s/a", 0, "k1")
			h.Fault()
			h.Called("r1", "p/s/a", 0, "k1")
			h.Decided("r1", "p/s/a")
			h.Called("r1", "p/t/b", 1, "k2")
		},
		"run r1 is accepted twice":  func(h *history) { h.Accepted("r1", "k") },
		"run r9 was never accepted": func(h *history) { h.Ended("r9") },
		"p/s/a of run r2 is called before run r1 of the same key has ended": func(h *history) { h.Called("r2", "p/s/a", 0, "k1") },
		"p/s/a of run r1 is called again, though its outcome was durable": func(h *history) {
			h.Decided("r1", "p/s/a")
			h.Called("r1", "p/s/a", 0, "k1")
		},
		"p/s/a of run r1 is called twice without a fault": func(h *history) {
			h.Called("r1", "p/s/a", 0, "k1")
			h.Called("r1", "p/s/a", 0, "k1")
		},
		"p/s/a of run r1 is called after stage 2 has begun": func(h *history) {
			h.Called("r1", "p/t/b", 1, "k2")
			h.Called("r1", "p/s/a", 0, "k1")
		},
		"p/s/a of run r1 is called with the keys k1 and k2": func(h *history) {
			h.Called("r1", "p/s/a", 0, "k1")
			h.Fault()
			h.Called("r1", "p/s/a", 0, "k2")
		},
		"p/s/a of run r1 and p/s/b of run r1 have the same key": func(h *history) {
			h.Called("r1", "p/s/a", 0, "k1")
			h.Called("r1", "p/s/b", 0, "k1")
		},
		"p/s/a of run r1 is decided twice": func(h *history) {
			h.Decided("r1", "p/s/a")
			h.Decided("r1", "p/s/a")
		},
	} {
		h := &history{}
		h.Accepted("r1", "k")
		h.Accepted("r2", "k")
		tell(h)
		h.Ended("r1")
		h.Ended("r2")
		if have := h.Check(); want == "" && len(have) > 0 || want != "" && !slices.Equal(have, []string{want}) {
			t.Errorf("want %q, have %q", want, have)
		}
	}
	for want, tell := range map[string]func(h *history){
		"run r1 has no end":                       func(*history) {},
		"run r1 ends twice":                       func(h *history) { h.Ended("r1"); h.Ended("r1") },
		"p/s/a of run r1 is called after the end": func(h *history) { h.Ended("r1"); h.Called("r1", "p/s/a", 0, "k1") },
		"run r2 ends before run r1 of the same key": func(h *history) {
			h.Accepted("r2", "k")
			h.Ended("r2")
			h.Ended("r1")
		},
	} {
		h := &history{}
		h.Accepted("r1", "k")
		tell(h)
		if have := h.Check(); !slices.Equal(have, []string{want}) {
			t.Errorf("want %q, have %q", want, have)
		}
	}
}
