package sharding_test

import (
	"strings"
	"testing"
	"time"

	"procaas/engine/checkpoint"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/sharding/transfers"
)

// ended waits until a run has ended, as wanted.
func (r *mover) ended(run string, want model.Status) checkpoint.RunView {
	r.t.Helper()
	for over := patience.Over(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		v, err := r.e.RunByID(r.t.Context(), run)
		if err != nil {
			r.t.Fatal(err)
		}
		if v.Status == want {
			return v
		}
		if v.Status.Ended() || over() {
			r.t.Fatalf("run %s is %s, want %s: %s", run, v.Status, want, v.Error)
		}
	}
}

func (r *mover) cancel(run string) {
	r.t.Helper()
	if _, err := r.e.Cancel(r.t.Context(), run, store.Actor{Name: "test"}); err != nil {
		r.t.Fatal(err)
	}
}

// The run of a transfer is cancelled, instead of the transfer: what it holds is found, and
// given back, or what it has begun is brought to its end.
func TestTransferWhoseRunWasCancelledIsEnded(t *testing.T) {
	t.Parallel()
	r := newMover(t)
	c := r.write()
	c.await(10)
	reached, release := make(chan struct{}), make(chan struct{})
	r.at("gate", func() error {
		close(reached)
		<-release
		return errCrash
	})
	run := r.start("")
	<-reached
	r.ended(r.submit("shard-orphans", "{}"), model.Succeeded)
	if got := r.awaitState(transfers.TransferRunning); got.Run != run {
		t.Errorf("run %s was taken for dead, and ended by %s", run, got.Run)
	}
	r.cancel(run)
	close(release)
	r.ended(run, model.Cancelled)
	r.ended(r.submit("shard-orphans", "{}"), model.Succeeded)
	r.awaitState(transfers.TransferCancelled)
	c.await(10)
	if n := r.number("s1", "select count(*) from pg_replication_slots where database = current_database()"); n != 0 {
		t.Errorf("%d slots are left", n)
	}

	run = r.start(`, "grace": "24h"`) // the key is free again
	r.await("another one that is observed", func(t transfers.ShardTransfer) bool {
		return t.Run == run &&
			t.State == transfers.TransferObserving
	})
	r.cancel(run)
	r.ended(run, model.Cancelled)
	r.ended(r.submit("shard-orphans", "{}"), model.Succeeded)
	r.awaitState(transfers.TransferDone)
	c.await(10)
	c.check("s2")
}

// What cannot be moved fails at once, and says why; of two transfers of one key the second one
// waits for the first, and finds nothing to do.
func TestTransfersThatCannotBe(t *testing.T) {
	t.Parallel()
	r := newMover(t)
	for _, c := range []struct{ payload, want string }{
		{`{"map": "letters", "key": "42", "target": "s2"}`, `unknown shard map "letters"`},
		{`{"map": "mail", "key": "43", "target": "s2"}`, `key "43"`},
		{`{"map": "mail", "key": "x", "target": "s2"}`, `key "x"`},
		{`{"map": "mail", "key": "42", "target": "s9"}`, `unknown shard "s9"`},
		{`{"map": "mail", "key": "42", "target": "s1"}`, `lives on s1 already`},
		{`{"map": "mail", "key": "42", "target": "s2", "hours": "late"}`, `want hours such as 22-6`},
		{`{"map": "mail", "key": "42", "target": "s2", "hours": "5-5"}`, `none of the day`},
	} {
		if v := r.ended(r.submit("shard-transfer", c.payload), model.Failed); !strings.Contains(v.Error, c.want) {
			t.Errorf("%s: have the error %q, want %q in it", c.payload, v.Error, c.want)
		}
	}
	c := r.write()
	c.await(10)
	reached, release := make(chan struct{}), make(chan struct{})
	r.at("publication", func() error {
		close(reached)
		<-release
		return nil
	})
	// Transfers are of no flow, so nothing but this says which of the two begins.
	first := r.start(`, "grace": "0s"`)
	<-reached
	second := r.start(`, "grace": "0s"`)
	r.await("the second one to wait", func(t transfers.ShardTransfer) bool {
		return t.Run == second && strings.HasPrefix(t.Waits, "it waits for transfer "+strings.ReplaceAll(first, "-", "_"))
	})
	close(release)
	r.ended(first, model.Succeeded)
	if v := r.ended(second, model.Failed); !strings.Contains(v.Error, "lives on s2 already") {
		t.Errorf("have the error %q", v.Error)
	}
	c.await(10)
	c.check("s2")
}

// A target that takes no more rows leaves the key where it is, and says so; when there is
// room again, the transfer goes on.
func TestTransferToAFullShardWaits(t *testing.T) {
	t.Parallel()
	r := newMover(t)
	r.exec("s2", `create function full_disk() returns trigger language plpgsql as $$ begin
		raise exception 'could not extend file "base/1/2": No space left on device' using errcode = 'disk_full'; end $$;
		create trigger full_disk before insert on messages for each row execute function full_disk();
		alter table messages enable always trigger full_disk`)
	c := r.write()
	c.await(10)
	run := r.start(`, "grace": "0s"`)
	r.await("the reason", func(t transfers.ShardTransfer) bool { return strings.Contains(t.Error, "No space left on device") })
	c.await(20)
	r.exec("s2", "drop trigger full_disk on messages")
	r.ended(run, model.Succeeded)
	c.await(10)
	c.check("s2")
}

// A trigger of the target that changes rows makes each copy differ. The transfer ends after some copies,
// says what to do, and leaves neither a slot nor rows.
func TestTransferThatAlwaysDiffersEnds(t *testing.T) {
	t.Parallel()
	r := newMover(t)
	r.exec("s2", `create function shout() returns trigger language plpgsql as $$ begin new.body = upper(new.body); return new; end $$;
		create trigger shout before insert on messages for each row execute function shout();
		alter table messages enable always trigger shout`)
	run := r.start(`, "grace": "0s"`)
	v := r.ended(run, model.Failed)
	if !strings.Contains(v.Error, "table public.messages differs between source and target after 3 copies") ||
		!strings.Contains(v.Error, "ENABLE ALWAYS") {
		t.Errorf("have the error %q", v.Error)
	}
	x := r.awaitState(transfers.TransferFailed)
	var slots, rows int
	r.ask("s1", "select count(*) from pg_replication_slots where slot_name like '%"+x.ID+"%'", &slots)
	r.ask("s2", "select count(*) from messages where user_id = 42", &rows)
	if x.Differed != 3 || slots != 0 || rows != 0 {
		t.Errorf("after %d copies, %d slots and %d rows of the target are left", x.Differed, slots, rows)
	}
}
