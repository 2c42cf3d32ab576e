package transfer_test

import (
	"errors"
	"flag"
	"testing"

	"procaas/handlers/sharding/transfer"
)

func TestTransferUnderLoadLosesNothing(t *testing.T) {
	w := newWorld(t)
	w.fill(5000)
	l := w.write(3)
	window, err := w.transfer(t.Context(), w.spec())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", window)
	l.stop()
	l.check()
	w.clean(5000)
	if shard, epoch := w.placed(); shard != 1 || epoch < 2 {
		t.Errorf("the key is on shard %d at epoch %d", shard, epoch)
	}
}

var errCrash = errors.New("killed")

// A coordinator that dies at any point is replaced by another one, which goes on. Here
// each of them dies at the next point that no one has died at before.
func TestTransferGoesOnAfterACrashAtEachPoint(t *testing.T) {
	w := newWorld(t)
	w.fill(300)
	l := w.write(2)
	crashed := map[string]bool{}
	spec := w.spec()
	spec.Hook = func(at string) error {
		if crashed[at] {
			return nil
		}
		crashed[at] = true
		return errCrash
	}
	for range len(transfer.Points) {
		if _, err := w.transfer(t.Context(), spec); !errors.Is(err, errCrash) {
			t.Fatalf("have %v, want a crash; so far at %v", err, crashed)
		}
	}
	if _, err := w.transfer(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	l.stop()
	l.check()
	w.clean(300)
	for _, point := range transfer.Points {
		if !crashed[point] {
			t.Errorf("the transfer never came to %s", point)
		}
	}
}

var every = flag.Bool("every", false, "crash transfers of their own at each point, instead of one at all")

func TestTransferEndsAfterOneCrash(t *testing.T) {
	points := transfer.Points
	if !*every {
		points = []string{"copied", "drained", "sealed"}
	}
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			w := newWorld(t)
			w.fill(300)
			l := w.write(2)
			spec, crashed := w.spec(), false
			spec.Hook = func(at string) error {
				if at == point && !crashed {
					crashed = true
					return errCrash
				}
				return nil
			}
			if _, err := w.transfer(t.Context(), spec); !errors.Is(err, errCrash) {
				t.Fatalf("have %v, want the crash at %s", err, point)
			}
			if _, err := w.transfer(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			l.stop()
			l.check()
			w.clean(300)
		})
	}
}
