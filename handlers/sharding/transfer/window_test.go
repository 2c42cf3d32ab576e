package transfer_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
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
	spanFlag   = flag.Duration("span", 0, "for how long TestWritePause moves a key to and fro, and measures; twice when 0")
)

// What the windows of a key of a million rows have to be, on a machine that does
// nothing else.
const (
	wantWindow = 20 * time.Millisecond
	wantRatio  = 200
	wantWrite  = 100 * time.Millisecond
)

// TestWindow moves a key by both methods while it is written to. With few rows it only
// looks that nothing is lost; make bench ONLY=shards measures, and ONLY=move shows.
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
		say("round %d by the stream: nobody could write for %v, the worst write took %v\n", round+1, window.Round(10*time.Microsecond),
			worst.Round(10*time.Microsecond))
	}
	locked, worst := moveOnce(t, say, "lock-copy-switch")
	say("by lock-copy-switch: nobody could write for %v, the worst write took %v\n", locked.Round(time.Millisecond),
		worst.Round(time.Millisecond))
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
			w.exec(i, `insert into mail (uid, mid, subject) select u, 1000 + i, 'noise'
				from generate_series(101, 110) u, generate_series(1, 20000) i`)
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
	done, m := w.move(spec, method, 1)
	at("the key lives on %s now: frozen for %v, of it freeze %v, drain %v, switch %v; %d rows compared within", w.names[1],
		done.Frozen.Round(time.Microsecond), done.Freeze.Round(time.Microsecond), done.Drain.Round(time.Microsecond),
		done.Switch.Round(time.Microsecond), done.Touched)
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
	return done.Frozen, l.worst(done.began, done.switched.Add(time.Second))
}

// A moved key could not be written from began until switched.
type moved struct {
	transfer.Window
	began, switched time.Time
}

// move moves the key to a shard, all but the cleanup, for which it returns the mover.
func (w *world) move(spec transfer.Spec, method string, to int) (done moved, m *transfer.Mover) {
	w.t.Helper()
	ctx := w.t.Context()
	c, _ := w.claim(spec.ID)
	switchMap := w.committing(to, spec.ID, c)
	m, err := w.open(ctx, transfer.Open, spec, c)
	if err != nil {
		w.t.Fatal(err)
	}
	cutover := func(ctx context.Context) (err error) {
		done.Window, err = m.Cutover(ctx, switchMap)
		return err
	}
	steps := []func(context.Context) error{m.Plan, m.Claim, m.Copy, m.Stream, m.Verify, cutover}
	if method != "stream" {
		cutover = func(ctx context.Context) (err error) {
			done.Window, err = m.LockCopySwitch(ctx, switchMap)
			return err
		}
		steps = []func(context.Context) error{m.PlanLocked, m.Claim, cutover}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			w.t.Fatal(errors.Join(err, m.Close()))
		}
	}
	done.switched = time.Now()
	done.began = done.switched.Add(-done.Frozen)
	if err := m.Retire(ctx); err != nil {
		w.t.Fatal(errors.Join(err, m.Close()))
	}
	return done, m
}

// committing is the switch of a map that commits, as a real one does: that of the other tests is in
// memory, and would make windows shorter than they are.
func (w *world) committing(to int, id string, c transfer.Claim) func(context.Context) error {
	w.t.Helper()
	w.exec(1, "create table if not exists public.the_map (key text primary key, epoch bigint, shard int)")
	w.exec(1, "insert into the_map values ($1, $2, 0) on conflict do nothing", key, c.Epoch)
	conn := w.connect(w.dsn[1])
	return func(ctx context.Context) error {
		tag, err := conn.Exec(ctx, "update the_map set shard = $4, epoch = $2 where key = $1 and epoch = $3", key, c.Next, c.Epoch, to)
		if err != nil || tag.RowsAffected() != 1 {
			return errors.Join(err, transfer.ErrNotSwitched)
		}
		return w.switchTo(to, id, c)(ctx)
	}
}

// TestWritePause moves a key to and fro under writes, and looks that nothing is lost; with -span, as
// make bench ONLY=pauses has it, it tells for how long clients could not write: a pause is the longest write
// around a move, from its first attempt until it was acknowledged, and the window what the mover held.
func TestWritePause(t *testing.T) {
	w := newWorld(t)
	defer w.drop()
	const rows = 2000
	w.fill(rows)
	l := w.write(2)
	l.await(50)
	var all []moved
	attempts := 0
	for began := time.Now(); len(all) < 2 || time.Since(began) < *spanFlag; {
		spec, to := w.spec(), 1-len(all)%2
		spec.ID = fmt.Sprintf("move_%d", len(all))
		if to == 0 {
			spec.Source, spec.Target = spec.Target, spec.Source
			spec.SourceShard, spec.TargetShard = spec.TargetShard, spec.SourceShard
		}
		if *spanFlag > 0 {
			spec.Limits = transfer.Limits{}
		}
		done, m := w.move(spec, "stream", to)
		l.await(20)
		if err := errors.Join(m.Cleanup(t.Context()), m.Close()); err != nil {
			t.Fatal(err)
		}
		all, attempts = append(all, done), attempts+done.Attempts
	}
	l.stop()
	l.check()
	w.clean(rows)
	var windows, pauses []time.Duration
	for _, done := range all {
		windows = append(windows, done.Frozen)
		pauses = append(pauses, l.worst(done.began, done.switched))
	}
	if *spanFlag > 0 {
		fmt.Fprintf(os.Stdout, "%d moves of a key of %d rows, %d attempts; 2 clients wrote %d times a second\n", len(all), rows*5/4, attempts,
			l.rate())
		fmt.Fprintf(os.Stdout, "write pause    %s\nfrozen window  %s\n", quantiles(pauses), quantiles(windows))
	}
}

// quantiles tells p50, p97 and the greatest of some durations, by the nearest rank.
func quantiles(all []time.Duration) string {
	slices.Sort(all)
	rank := func(q float64) time.Duration {
		return all[max(0, int(math.Ceil(q*float64(len(all))))-1)].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("p50 %8v  p97 %8v  max %8v", rank(0.5), rank(0.97), rank(1))
}
