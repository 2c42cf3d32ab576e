package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"procaas/engine/store"
)

// openFast opens a store that need not survive the machine.
func openFast(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), Options{Migrate: true, Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// SQLite ends the transaction by itself when the disk is full. What comes after that in
// the same transaction must not be written either: its callers learn that it is not.
func TestAFullDiskFailsAllWritesOfItsTransaction(t *testing.T) {
	t.Parallel()
	s := openFast(t)
	var pages int
	if err := s.writer.do(t.Context(), func(x *tx) error {
		if _, err := x.row("pragma page_count", nil, &pages); err != nil {
			return err
		}
		_, err := x.row(fmt.Sprintf("pragma max_page_count = %d", pages+8), nil, &pages)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for i, err := range together(t, s, put("before", 1), put("large", 1<<20), put("after", 1)) {
		if err == nil {
			t.Errorf("write %d of the transaction is said to be durable", i)
		}
		if i == 1 && !store.IsOutOfRoom(err) {
			t.Errorf("want it said that the disk is full, have %v", err)
		}
	}
	if rest, err := s.PeekTasks(t.Context(), store.TaskFilter{}); err != nil || len(rest) != 0 {
		t.Errorf("have %+v, %v, want nothing of what has failed", rest, err)
	}
	out, err := s.PutTasks(t.Context(), []store.TaskSpec{{Type: "small"}})
	if err = errors.Join(err, errOf(out)); err != nil {
		t.Errorf("what still has room: %v", err)
	}
}

// put makes a task of a type.
func put(kind string, payload int) func(*tx) error {
	return func(x *tx) error {
		return x.exec("insert into tasks (created, due, deadline, place, type, payload) values (0, 0, 0, 'ready', ?, ?)", kind,
			make([]byte, payload))
	}
}

// together hands writes in while another one runs, so that they share the next
// transaction.
func together(t *testing.T, s *Store, writes ...func(*tx) error) (errs []error) {
	t.Helper()
	begun, goOn := make(chan struct{}), make(chan struct{})
	s.writer.ops <- &op{ctx: context.Background(), reply: make(chan struct{}), write: func(*tx) error {
		close(begun)
		<-goOn
		return nil
	}}
	<-begun
	var group []*op
	for _, write := range writes {
		group = append(group, &op{ctx: context.Background(), reply: make(chan struct{}), write: write})
		s.writer.ops <- group[len(group)-1]
	}
	close(goOn)
	for _, o := range group {
		<-o.reply
		errs = append(errs, o.err)
	}
	return errs
}

// A write that fails takes back what it has done, and nothing of those that share its
// transaction, which are there once.
func TestAWriteFailsAlone(t *testing.T) {
	t.Parallel()
	s := openFast(t)
	errs := together(t, s, put("before", 1), func(x *tx) error {
		return errors.Join(put("half", 1)(x), store.ErrConflict)
	}, put("after", 1))
	if errs[0] != nil || !errors.Is(errs[1], store.ErrConflict) || errs[2] != nil {
		t.Errorf("want the second one to fail alone, have %v", errs)
	}
	tasks, err := s.PeekTasks(t.Context(), store.TaskFilter{})
	if err != nil || len(tasks) != 2 || tasks[0].Type != "before" || tasks[1].Type != "after" {
		t.Errorf("want the tasks before and after, have %+v, %v", tasks, err)
	}
}

func errOf(out []store.TaskPut) (err error) {
	for _, one := range out {
		err = errors.Join(err, one.Err)
	}
	return err
}

// Fill bounds how many pages the file may have, so that it has room for little more.
func (s *Store) Fill(t *testing.T, full bool) {
	t.Helper()
	if err := s.writer.do(t.Context(), func(x *tx) error {
		pages, most := 0, 1<<30
		if _, err := x.row("pragma page_count", nil, &pages); err != nil {
			return err
		}
		if full {
			most = pages + 30
		}
		_, err := x.row(fmt.Sprintf("pragma max_page_count = %d", most), nil, &pages)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
