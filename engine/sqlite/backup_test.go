package sqlite_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"procaas/engine/model"
	"procaas/engine/sqlite"
	"procaas/engine/store"
)

// TestBackupsHaveWhatWasAcknowledged copies a store while a node writes all the time.
func TestBackupsHaveWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "store.db")
	s := open(t, path)
	var acknowledged atomic.Int64
	submit := func() error {
		n := acknowledged.Load() + 1
		if _, err := s.Accept(t.Context(), 0, []model.Intake{intake(strconv.FormatInt(n, 10))}); err != nil {
			return err
		}
		acknowledged.Store(n)
		return nil
	}
	stop := make(chan struct{})
	var load errgroup.Group
	load.Go(func() error {
		for {
			select {
			case <-stop:
				return nil
			default:
			}
			if err := submit(); err != nil {
				return err
			}
		}
	})
	for i := range 5 {
		before, copied := acknowledged.Load(), filepath.Join(dir, fmt.Sprint("copy", i))
		if err := sqlite.Backup(t.Context(), path, copied); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(copied)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("want a file of its owner alone, have %v, %v", info, err)
		}
		n, err := strconv.ParseInt(sqlite3(t, copied, "select count(*) from runs"), 10, 64)
		if err != nil || n < before {
			t.Errorf("want the %d acknowledged runs in the copy, have %d, %v", before, n, err)
		}
	}
	close(stop)
	if err := load.Wait(); err != nil {
		t.Fatal(err)
	}
	again := open(t, filepath.Join(dir, "copy4"))
	if _, err := again.Accept(t.Context(), 0, []model.Intake{intake("new")}); err != nil {
		t.Error(err)
	}
	if err := sqlite.Backup(t.Context(), path, filepath.Join(dir, "copy3")); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("want no copy overwritten, have %v", err)
	}
}

// TestDamageIsFoundAndNamed spoils a page that no node has read.
func TestDamageIsFoundAndNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "store.db")
	s := open(t, path)
	if _, err := s.Accept(t.Context(), 0, []model.Intake{intake("a")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	look := func() map[string]store.Check {
		t.Helper()
		all, err := sqlite.Examine(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]store.Check{}
		for _, c := range all {
			found[c.Name] = c
		}
		return found
	}
	for _, c := range look() {
		if c.Level != store.CheckFine {
			t.Errorf("want a sound file to be fine, have %+v", c)
		}
	}
	const pageSize = 4096
	for name, at := range map[string]int{"the beginning": 0, "a page": len(data) / pageSize / 2 * pageSize} {
		spoilt := bytes.Clone(data)
		copy(spoilt[at:], bytes.Repeat([]byte{0xa5}, pageSize))
		if err := os.WriteFile(path, spoilt, 0o600); err != nil {
			t.Fatal(err)
		}
		if c := look()["pages"]; c.Level != store.CheckRefused || !strings.Contains(c.Found, "store.db is damaged: ") || c.Remedy == "" {
			t.Errorf("%s: have %+v", name, c)
		}
		copied := filepath.Join(dir, "copy")
		err := sqlite.Backup(t.Context(), path, copied)
		if err == nil {
			t.Errorf("%s: want no copy of a damaged file", name)
		}
		if left, _ := filepath.Glob(copied + "*"); len(left) > 0 {
			t.Errorf("%s: want no file left, have %q", name, left)
		}
	}
	if c := look()["file"]; c.Level != store.CheckFine {
		t.Errorf("have %+v", c)
	}
}
