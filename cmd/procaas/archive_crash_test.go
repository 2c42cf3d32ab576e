package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"procaas/engine/api/cli"
	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/store"
)

// Runs leave as soon as there are five newer ones.
const leaving = `
pipelines:
  - id: few
    keep: 5
    shared-state: {note: null}
    stages: [{id: only, handlers: [{id: keep, set: {note: !$ event.payload.said}}]}]
`

// submitFew submits events, and returns their runs when all have ended.
func (c *crashing) submitFew(ctx context.Context, from, events int) (runs []string) {
	c.t.Helper()
	for n := range events {
		id := fmt.Sprint(from + n)
		receipt, err := c.client.SubmitEvent(ctx, wire.Event{Type: "few", ID: id, Source: "test", Payload: map[string]any{"said": "said " + id}})
		if err != nil {
			c.t.Fatal(err)
		}
		runs = append(runs, receipt.Run)
	}
	patience.Until(c.t, "the end of all runs", func() bool { return len(c.listFew(ctx, func(s model.Status) bool { return !s.Ended() })) == 0 })
	return runs
}

// listFew lists the runs of the store that have some status.
func (c *crashing) listFew(ctx context.Context, of func(model.Status) bool) (ids []string) {
	c.t.Helper()
	page, err := c.client.Runs(ctx, store.RunFilter{Pipeline: "few", Limit: 1000})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, r := range page.Items {
		if of(r.Status) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// awaitFive waits until all but the last five runs have left the store, and returns those.
func (c *crashing) awaitFive(ctx context.Context) (kept []string) {
	c.t.Helper()
	patience.Until(c.t, "all others archived", func() bool {
		kept = c.listFew(ctx, func(model.Status) bool { return true })
		return len(kept) == 5
	})
	return kept
}

// checkNoneLost checks that each run is in the archive or in the store, and that those of the archive are whole.
func checkNoneLost(t *testing.T, runs, kept []string, archived []checkpoint.RunView) {
	t.Helper()
	there := map[string]bool{}
	for _, id := range kept {
		there[id] = true
	}
	for _, r := range archived {
		there[r.ID] = true
		if said := "said " + r.Event.ID; r.Status != model.Succeeded || r.Finished == nil || len(r.Handlers) != 1 || r.SharedState["note"] != said {
			t.Errorf("want a whole run that has %q, have %+v", said, r)
		}
	}
	for _, id := range runs {
		if !there[id] {
			t.Errorf("run %s is neither in the archive nor in the store", id)
		}
	}
	if len(there) != len(runs) {
		t.Errorf("want %d runs, have %d", len(runs), len(there))
	}
}

// readLines reads the runs of one file of an archive.
func readLines(t *testing.T, from io.Reader) (all []checkpoint.RunView) {
	t.Helper()
	z, err := gzip.NewReader(from)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	for lines.Scan() {
		var r checkpoint.RunView
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
	return all
}

// archiveFiles lists the files below a folder, also those that are not finished.
func archiveFiles(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // an unfinished file that was renamed meanwhile
		}
		if err == nil && !d.IsDir() {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestArchivedRunsSurviveKill9 kills a node again and again as soon as something new is in the folder of its archive.
func TestArchivedRunsSurviveKill9(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	c := newCrashing(t, "sqlite:"+filepath.Join(t.TempDir(), "archived.db"), leaving, "", "--archive", "file://"+dir, "--archive-every", "1s")
	var runs []string
	for range 3 {
		server := c.start(ctx)
		before := archiveFiles(t, dir)
		runs = append(runs, c.submitFew(ctx, len(runs), 60)...)
		patience.Until(t, "something new in the archive", func() bool { return !slices.Equal(archiveFiles(t, dir), before) })
		server.kill()
	}
	server := c.start(ctx)
	kept := c.awaitFive(ctx)
	server.terminate()
	var archived []checkpoint.RunView
	for _, path := range archiveFiles(t, dir) {
		if strings.Contains(path, ".unfinished") {
			continue // a crash has left it
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		archived = append(archived, readLines(t, f)...)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	checkNoneLost(t, runs, kept, archived)
}

// What a bucket does with what is put into it.
const (
	putFine   int32 = iota
	putUnseen       // it never answers, and stores nothing
	putSecret       // it stores the object, and never answers
)

// TestAPartIsPutAgainAfterKill9 kills a node whose bucket does not answer, before and after it has the part. The part has the same name
// then, so the bucket has its runs once. The store is encrypted, and the archive is not.
func TestAPartIsPutAgainAfterKill9(t *testing.T) {
	ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
	defer cancel()
	backend := s3mem.New()
	if err := backend.CreateBucket("runs"); err != nil {
		t.Fatal(err)
	}
	fake := gofakes3.New(backend).Server()
	var mode atomic.Int32
	puts := make(chan struct{}, 100) // more than there are
	bucket := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := mode.Load()
		if r.Method != http.MethodPut || now == putFine {
			fake.ServeHTTP(w, r)
			return
		}
		if now == putSecret {
			fake.ServeHTTP(httptest.NewRecorder(), r)
		} else if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		puts <- struct{}{}
		<-r.Context().Done()
	}))
	defer bucket.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "an-id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "a-secret")
	keys := filepath.Join(t.TempDir(), "keys.json")
	if code, out := procaas(t, "store", "keys", "new", keys); code != cli.ExitFine {
		t.Fatal(out)
	}
	c := newCrashing(t, enginetest.Postgres(t), leaving, "", "--encryption-keys", keys, "--archive-every", "1s",
		"--archive", "s3://runs/prod?endpoint="+bucket.URL)

	mode.Store(putUnseen)
	server := c.start(ctx)
	runs := c.submitFew(ctx, 0, 40)
	<-puts
	server.kill()
	if n := len(objectsOf(t, backend)); n > 0 {
		t.Fatalf("want nothing in the bucket, have %d objects", n)
	}
	mode.Store(putSecret)
	server = c.start(ctx)
	<-puts
	if left := c.listFew(ctx, func(model.Status) bool { return true }); len(left) != len(runs) {
		t.Errorf("want all runs in the store until the bucket has answered, have %d of %d", len(left), len(runs))
	}
	server.kill()
	mode.Store(putFine)
	server = c.start(ctx)
	kept := c.awaitFive(ctx)
	server.terminate()
	names := objectsOf(t, backend)
	if len(names) != 1 || !strings.HasPrefix(names[0], "prod/date=") {
		t.Fatalf("want one object, as each part replaces itself, have %v", names)
	}
	o, err := backend.GetObject("runs", names[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	archived := readLines(t, o.Contents)
	if len(archived) != len(runs)-5 {
		t.Errorf("want %d runs archived, have %d", len(runs)-5, len(archived))
	}
	checkNoneLost(t, runs, kept, archived)
}

// objectsOf lists the objects of the bucket.
func objectsOf(t *testing.T, backend *s3mem.Backend) (names []string) {
	t.Helper()
	list, err := backend.ListBucket("runs", nil, gofakes3.ListBucketPage{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Contents {
		names = append(names, o.Key)
	}
	return names
}

// TestServeRefusesAnArchiveThatCannotWork starts nodes whose archives no wait mends.
func TestServeRefusesAnArchiveThatCannotWork(t *testing.T) {
	t.Parallel()
	flows := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(flows, []byte(leaving), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--archive", "file://" + missing}, "a node does not make it"},
		{[]string{"--archive", "s3://a-bucket:9000/x"}, "bucket"},
		{[]string{"--archive", "file://" + t.TempDir(), "--archive-format", "csv"}, "jsonl or parquet"},
		{[]string{"--archive-every", "1ms"}, "want 1s or more"},
	} {
		args := append([]string{"serve", "--store", "sqlite:" + filepath.Join(t.TempDir(), "a.db"), "--pipelines", flows, "--listen", "127.0.0.1:0"}, c.flags...)
		if code, out := procaas(t, args...); code != cli.ExitUsage || !strings.Contains(out, c.want) {
			t.Errorf("%v: want exit code 2 and %q, have %d, %s", c.flags, c.want, code, out)
		}
	}
}
