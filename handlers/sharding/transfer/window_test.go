package transfer_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"procaas/handlers/sharding/transfer"
)

var (
	rowsFlag   = flag.Int("rows", 1000, "rows of the key that TestWindow moves; with 100,000 or more it measures")
	roundsFlag = flag.Int("rounds", 1, "how often TestWindow moves it by the stream")
	showFlag   = flag.Bool("show", false, "TestWindow tells its story on standard output")
)

// What the windows of a key of a million rows have to be, on a machine that does
// nothing else.
const (
	wantWindow = 20 * time.Millisecond
	wantRatio  = 200
	wantWrite  = 100 * time.Millisecond
)

// TestWindow moves a key by both methods while it is written to. With few rows it only
// looks that nothing is lost; make bench-shards measures, and make demo-shards shows.
func TestWindow(t *testing.T) {
	measures := *rowsFlag >= 100_000
	say := func(format string, args ...any) {
		if measures || *showFlag {
			fmt.Fprintf(os.Stdout, format+"\n", args...)
		}
	}
	var windows, writes []time.Duration
	for round := range *roundsFlag {
		window, worst := moveOnce(t, say, "stream")
		windows, writes = append(windows, window), append(writes, worst)
		say("round %d by the stream: nobody could write for %v, the worst write took %v\n", round+1, window.Round(10*time.Microsecond), worst.Round(10*time.Microsecond))
	}
	locked, worst := moveOnce(t, say, "lock-copy-switch")
	say("by lock-copy-switch: nobody could write for %v, the worst write took %v\n", locked.Round(time.Millisecond), worst.Round(time.Millisecond))
	slices.Sort(windows)
	slices.Sort(writes)
	p50 := windows[len(windows)/2]
	say("%d rows: window p50 %v, 1/%.0f of lock-copy-switch, worst write around it %v; no acknowledged write was lost",
		*rowsFlag, p50.Round(10*time.Microsecond), float64(locked)/float64(p50), writes[len(writes)-1].Round(10*time.Microsecond))
	if measures {
		say("wanted: window p50 %v, 1/%d, worst write %v", wantWindow, wantRatio, wantWrite)
	}
}

func moveOnce(t *testing.T, say func(string, ...any), method string) (window, worst time.Duration) {
	w := newWorld(t)
	defer w.drop()
	rows := *rowsFlag * 4 / 5 // and a quarter as many labels
	w.fill(rows)
	if rows > 10_000 {
		for i := range 2 {
			w.exec(i, `insert into mail (uid, mid, subject) select u, 1000 + i, 'noise' from generate_series(101, 110) u, generate_series(1, 20000) i`)
			w.exec(i, "vacuum analyze")
		}
	}
	l := w.write(2)
	l.await(50)
	began, ctx := time.Now(), t.Context()
	at := func(format string, args ...any) {
		say("%7.3fs  %s", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	at("%d rows of key %s live on %s; 2 clients write to it all the time", *rowsFlag, key, w.names[0])
	spec := w.spec()
	if *rowsFlag >= 100_000 {
		spec.Limits = transfer.Limits{}
	}
	if *showFlag {
		spec.Report = func(p transfer.Progress) {
			at("%-8s %5.1f %%  %8d rows  %6d kB  lag %d kB", p.Step, p.Percent, p.Rows, p.Bytes>>10, p.Lag>>10)
		}
		spec.Hook = func(point string) error { at("· %s", point); return nil }
	}
	c, _ := w.claim(spec.ID)
	// The map of these tests is in memory; a real one commits, so this one does as well.
	w.exec(1, "create table public.the_map (key text primary key, epoch bigint, shard int)")
	w.exec(1, "insert into the_map values ($1, $2, 0)", key, c.Epoch)
	committed := w.connect(w.dsn[1])
	switchMap := func(ctx context.Context) error {
		tag, err := committed.Exec(ctx, "update the_map set shard = 1, epoch = $2 where key = $1 and epoch = $3", key, c.Next, c.Epoch)
		if err != nil || tag.RowsAffected() != 1 {
			return errors.Join(err, transfer.ErrNotSwitched)
		}
		return w.switchTo(1, spec.ID, c)(ctx)
	}
	m, err := transfer.Open(ctx, spec, c)
	if err != nil {
		t.Fatal(err)
	}
	var done transfer.Window
	var frozen, switched time.Time
	steps := []func(context.Context) error{m.Plan, m.Claim, m.Copy, m.Stream, m.Verify, func(ctx context.Context) (err error) {
		done, err = m.Cutover(ctx, switchMap)
		return err
	}}
	if method != "stream" {
		steps = []func(context.Context) error{m.PlanLocked, m.Claim, func(ctx context.Context) (err error) {
			done, err = m.LockCopySwitch(ctx, switchMap)
			return err
		}}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			t.Fatal(errors.Join(err, m.Close()))
		}
	}
	switched = time.Now()
	frozen = switched.Add(-done.Frozen)
	if err := m.Retire(ctx); err != nil {
		t.Fatal(err)
	}
	at("the key lives on %s now: frozen for %v, of it freeze %v, drain %v, switch %v; %d rows compared within", w.names[1],
		done.Frozen.Round(time.Microsecond), done.Freeze.Round(time.Microsecond), done.Drain.Round(time.Microsecond), done.Switch.Round(time.Microsecond), done.Touched)
	l.await(100)
	if err := errors.Join(m.Cleanup(ctx), m.Close()); err != nil {
		t.Fatal(err)
	}
	at("nothing of it is left on %s", w.names[0])
	l.stop()
	l.check()
	if rows <= 10_000 {
		w.clean(rows)
	}
	writes, refused := l.total()
	at("%d writes were acknowledged, %d had to be repeated, all are there", writes, refused)
	return done.Frozen, l.worst(frozen, switched.Add(time.Second))
}
