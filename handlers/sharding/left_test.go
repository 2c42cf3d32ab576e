package sharding_test

import (
	"strings"
	"testing"
	"time"

	"procaas/handlers/sharding/transfers"
)

// children makes a table that refers to labels, with a row for label 1 of a key.
const children = `create table colours (label bigint, owner bigint, foreign key (owner, label) references labels (user_id, id))`

// The transfer does not begin, so the parents of the rows are not deleted.
func TestChildrenThatAreNotListedKeepTheirKey(t *testing.T) {
	t.Parallel()
	r := newMover(t)
	r.exec("s1", children)
	r.exec("s1", "insert into colours values (1, 42), (2, 42)")
	for _, method := range []string{"stream", "lock-copy-switch"} {
		r.start(`, "method": "` + method + `"`)
		got := r.await("a refusal", func(x transfers.ShardTransfer) bool { return x.State == transfers.TransferFailed && x.Method == method })
		if !strings.Contains(got.Error, "would stay on shard s1: 2 in table public.colours") {
			t.Errorf("%s: %s", method, got.Error)
		}
	}
	if p, err := r.m.Read(t.Context(), "42"); err != nil || p.Shard != "s1" {
		t.Errorf("the key is at %+v, %v; want s1", p, err)
	}
	r.exec("s1", "delete from colours where owner = 42")
	r.start("")
	r.awaitState(transfers.TransferObserving)
}

// A table that has become one that a publication breaks is found before the transfer changes anything.
func TestTransferRefusesWhatThePreflightFinds(t *testing.T) {
	t.Parallel()
	r := newMover(t)
	for _, shard := range []string{"s1", "s2"} {
		r.exec(shard, "alter table labels drop constraint labels_pkey, add primary key (user_id, id) deferrable")
	}
	for _, method := range []string{"auto", "lock-copy-switch"} {
		r.start(`, "method": "` + method + `"`)
		got := r.await("a refusal", func(x transfers.ShardTransfer) bool { return x.State == transfers.TransferFailed && x.Method == method })
		for _, shard := range []string{"s1", "s2"} {
			if want := "shard " + shard + ": table labels: its primary key is deferrable"; !strings.Contains(got.Error, want) {
				t.Errorf("%s: %s, want %s", method, got.Error, want)
			}
		}
	}
	var publications int
	r.ask("s1", "select count(*) from pg_publication where pubname not like 'procaas_mail_%'", &publications)
	if publications != 0 {
		t.Errorf("the transfers have left %d publications", publications)
	}
}

// A table that only has a column of the key is not moved either. The map says which of them stay, and
// those of another map do.
func TestRowsStayInTablesOfTheKeyOnlyOnPurpose(t *testing.T) {
	t.Parallel()
	r := moverOn(t, newRig(t, transferMap+`  - id: disk
    key: user
    tables: [{table: files, key: user_id}]
    CONNECT
    shards: [{id: disk-1, hosts: [{address: HOST1}]}]
`), time.Minute)
	r.exec("s1", `create table files (user_id bigint primary key); insert into files values (42);
		create table notes (user_id int, body text); insert into notes values (42, 'a'), (42, 'b'), (7, 'of another');
		create table months (user_id bigint, month int) partition by range (month);
		create table months_1 partition of months for values from (1) to (2); insert into months values (42, 1);
		create table others (user_id uuid); insert into others values (gen_random_uuid())`)
	r.start("")
	got := r.awaitState(transfers.TransferFailed)
	if !strings.Contains(got.Error, "shard s1: 1 in table public.months_1, 2 in table public.notes, which") ||
		!strings.Contains(got.Error, "stays:") {
		t.Error(got.Error)
	}
	// Such rows also hold up the end of a transfer that has switched.
	changed := *r.declared[0] // nodes read the one in use
	changed.Stays = []string{"months", "others"}
	r.declared[0] = &changed
	if err := r.Apply(t.Context(), r.declared); err != nil {
		t.Fatal(err)
	}
	r.exec("s1", "delete from notes where user_id = 42")
	r.at("switched", func() error { return r.try("s1", "insert into notes values (42, 'late')") })
	r.start("")
	got = r.awaitState(transfers.TransferObserving)
	r.order(got.ID, transfers.OrderFinish)
	r.await("what is left", func(x transfers.ShardTransfer) bool {
		return strings.Contains(x.Error, "are left on shard s1: 1 in table public.notes")
	})
	r.exec("s1", "delete from notes where user_id = 42")
	r.awaitState(transfers.TransferDone)
	var rows int
	r.ask("s1", "select count(*) from months where user_id = 42", &rows)
	if rows != 1 {
		t.Errorf("the source has %d rows that stay, want 1", rows)
	}
}

// A partition that was made after the plan gets a row of the key while the transfer runs.
func TestPartitionOfNextMonthIsFoundBeforeTheSwitch(t *testing.T) {
	t.Parallel()
	r := newMover(t)
	months := `drop table labels; create table labels_all (user_id bigint, id bigint, primary key (user_id, id)) partition by range (id);
		create table labels partition of labels_all for values from (0) to (1000)`
	for _, shard := range []string{"s1", "s2"} {
		r.exec(shard, months)
	}
	r.exec("s1", "insert into labels values (42, 1)")
	r.enroll("mail")
	r.at("verify", func() error {
		return r.try("s1", "create table labels_next partition of labels_all for values from (1000) to (2000); "+
			"insert into labels_all values (42, 1001)")
	})
	r.start("")
	if got := r.awaitState(transfers.TransferFailed); !strings.Contains(got.Error, "1 in table public.labels_next") {
		t.Error(got.Error)
	}
	var rows int
	r.ask("s1", "select count(*) from labels_all where user_id = 42", &rows)
	if rows != 2 {
		t.Errorf("the source has %d rows of the key, want 2", rows)
	}
}

// Rows that came after the last look hold up the end of the transfer, until somebody has moved them.
func TestTransferThatLeftRowsIsNotDone(t *testing.T) {
	t.Parallel()
	r := newMover(t)
	r.exec("s1", children)
	r.at("switched", func() error { return r.try("s1", "insert into colours values (1, 42)") })
	r.start("")
	got := r.awaitState(transfers.TransferObserving)
	r.order(got.ID, transfers.OrderFinish)
	r.await("what is left", func(x transfers.ShardTransfer) bool {
		return strings.Contains(x.Error, "are left on shard s1: 1 in table public.colours")
	})
	var parents int
	r.ask("s1", "select count(*) from labels where user_id = 42", &parents)
	if parents != 50 {
		t.Errorf("the source has %d parents, want 50: the row that is left refers to one", parents)
	}
	r.exec("s1", "delete from colours")
	r.awaitState(transfers.TransferDone)
	r.ask("s1", "select count(*) from labels where user_id = 42", &parents)
	if parents != 0 {
		t.Errorf("the source has %d rows in the end, want none", parents)
	}
}
