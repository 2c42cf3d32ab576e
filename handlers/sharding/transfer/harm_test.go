package transfer_test

import (
	"context"
	"errors"
	"flag"
	"net/url"
	"slices"
	"testing"
	"time"

	"procaas/engine/enginetest"
	"procaas/handlers/sharding/transfer"
)

var every = flag.Bool("every", false, "harm transfers of their own in each way at each point, besides one that meets most of it; see "+
	"make test-long ONLY=transfers")

// A harm is what befalls a coordinator at one point of a transfer.
type harm struct {
	at, what string
	refused  bool // the map does not switch for it either
}

// What may befall it. A shard that is cut off stays so until the coordinator has stopped trying.
const (
	killed    = "killed"
	sourceCut = "source cut off"
	targetCut = "target cut off"
)

// errCrash is what a coordinator that is killed at a point ends with.
var errCrash = errors.New("killed")

// Points at which the steps of a transfer are left half done: prepare, copy, catch-up, seal, thaw and
// clean. The flip is one point, at which a transfer can be left once only; and behind the copy the target
// continues without its source.
var (
	cutsOfTarget = []string{"publication", "copied", "stream", "sealed", "thaw", "cleanup"}
	cutsOfSource = []string{"publication", "copy", "stream", "sealed", "thaw", "cleanup"}
)

// harmsOf lists one way of harm at some points.
func harmsOf(what string, points ...string) (out []harm) {
	for _, at := range points {
		out = append(out, harm{at: at, what: what, refused: at == "thaw"})
	}
	return out
}

// survive attempts something that meets one harm after another, each the first time that it comes
// to the place: those behind a harm go on where the one before was left. The last attempt meets none.
func (w *world) survive(spec transfer.Spec, harms []harm, attempt func(context.Context, transfer.Spec) error) {
	w.t.Helper()
	cuts := w.proxied(&spec)
	for _, h := range append(slices.Clone(harms), harm{}) {
		met := false
		spec.Hook = func(at string) error {
			if met || at != h.at {
				return nil
			}
			met = true
			if h.what == killed {
				return errCrash
			}
			cuts[h.what].Refuse(time.Hour)
			return nil
		}
		w.refuse(h.refused)
		err := attempt(w.t.Context(), spec)
		for _, p := range cuts {
			p.Refuse(0)
		}
		switch {
		case h.at != "" && !met:
			w.t.Fatalf("it never came to %s: %v", h.at, err)
		case h.what == killed && !errors.Is(err, errCrash):
			w.t.Fatalf("killed at %s: have %v", h.at, err)
		case h.what != "" && err == nil && h.at != "cleaned": // where nothing is left to do
			w.t.Fatalf("%s at %s, and nobody has noticed", h.what, h.at)
		case h.what == "" && err != nil:
			w.t.Fatalf("without any harm: %v", err)
		}
	}
}

// refuse lets the map switch for nobody, or for everybody again.
func (w *world) refuse(switches bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuses = switches
}

// proxied leads the connections of a transfer, and of nobody else, through proxies.
func (w *world) proxied(spec *transfer.Spec) map[string]*enginetest.Proxy {
	w.t.Helper()
	out := map[string]*enginetest.Proxy{}
	for what, dsn := range map[string]*string{sourceCut: &spec.Source, targetCut: &spec.Target} {
		u, err := url.Parse(*dsn)
		if err != nil {
			w.t.Fatal(err)
		}
		p, err := enginetest.StartProxy(u.Host)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() {
			if err := p.Close(); err != nil {
				w.t.Error(err)
			}
		})
		if *dsn, err = p.Through(*dsn); err != nil {
			w.t.Fatal(err)
		}
		out[what] = p
	}
	return out
}

// attempt does all steps of a transfer.
func (w *world) attempt(ctx context.Context, spec transfer.Spec) error {
	_, err := w.transfer(ctx, spec)
	return err
}

// One transfer is left at each of its points by a coordinator that dies, and at each step by ones that lose
// the source and the target, while clients write to the key: the last coordinator ends it, nothing
// that was acknowledged is lost, and nothing is left behind.
func TestTransferGoesOnAfterEachHarmAtEachStep(t *testing.T) {
	w := newWorld(t)
	w.fill(300)
	l := w.write(2)
	var harms []harm
	for _, point := range transfer.Points {
		harms = append(harms, harmsOf(killed, point)...)
		if slices.Contains(cutsOfTarget, point) {
			harms = append(harms, harm{point, targetCut, true})
		}
		if slices.Contains(cutsOfSource, point) {
			harms = append(harms, harm{point, sourceCut, true})
		}
	}
	w.survive(w.spec(), harms, w.attempt)
	l.stop()
	l.check()
	w.clean(300)
}

// A transfer that meets one harm only ends as well: the harms before do not help the later ones.
func TestTransferEndsAfterOneHarm(t *testing.T) {
	harms := append(harmsOf(killed, "copied", "drained"), harm{"sealed", sourceCut, false}, harm{"switched", targetCut, false})
	if *every {
		harms = nil
		for _, what := range []string{killed, sourceCut, targetCut} {
			harms = append(harms, harmsOf(what, transfer.Points...)...)
		}
	}
	for _, h := range harms {
		t.Run(h.at+" "+h.what, func(t *testing.T) {
			w := newWorld(t)
			defer w.drop()
			w.fill(300)
			l := w.write(2)
			w.survive(w.spec(), []harm{h}, w.attempt)
			l.await(20)
			l.stop()
			l.check()
			w.clean(300)
		})
	}
}
