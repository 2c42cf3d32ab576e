package archive_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

	"github.com/google/go-cmp/cmp"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/parquet-go/parquet-go"

	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/handlers/archive"
)

// runs are ended runs with what runs may have.
func runs(n int) []records.Archived {
	at := time.Date(2026, 1, 31, 12, 0, 0, 123456000, time.UTC)
	var all []records.Archived
	for i := range n {
		ended := at.Add(time.Duration(i) * time.Second)
		r := records.Archived{RunView: checkpoint.RunView{
			ID: fmt.Sprintf("run-%03d", i), Pipeline: "pay", Flow: "pay", Key: "k", Status: model.Succeeded, Accepted: at, Finished: &ended,
			Event:       checkpoint.EventView{ID: fmt.Sprint(i), Source: "shop", Type: "paid", Time: at, Payload: map[string]any{"said": "<ä> & \"b\""}},
			SharedState: map[string]any{"total": json.Number("12345678901234567890")}, Generation: i,
			Handlers: []checkpoint.HandlerView{{Path: "pay/a/b", Outcome: "succeeded", Attempts: 1}},
		}}
		if i%2 == 1 {
			r.Started, r.Status, r.Error, r.Outputs = &at, model.Cancelled, "timeout", map[string]any{"ok": true}
			r.Labels = map[string]string{"city": "berlin"}
			r.State, r.Recording = "open", &checkpoint.RunRecording{Calls: []checkpoint.RecordedCall{{Ref: "pay/a/b", Attempt: 1, Took: 7}}}
		}
		all = append(all, r)
	}
	return all
}

func part(name string, all []records.Archived) records.ArchivePart {
	return records.ArchivePart{Day: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC), Name: name, Runs: slices.Values(all)}
}

func open(t *testing.T, address, format string) *archive.Archive {
	t.Helper()
	a, err := archive.Open(address, format)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return a
}

func keep(t *testing.T, a *archive.Archive, p records.ArchivePart) {
	t.Helper()
	if err := a.Keep(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// files lists the files of a folder, with those of its folders.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(dir, path)
			names = append(names, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// lines reads a file of JSON Lines.
func lines(t *testing.T, file string) (all []map[string]any) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(z); s.Scan(); {
		var line map[string]any
		if err := json.Unmarshal(s.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		all = append(all, line)
	}
	return all
}

func TestAFolderHasWholeFilesOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := open(t, "file://"+dir, "jsonl")
	if have := files(t, dir); len(have) > 0 {
		t.Errorf("want no file from the check, have %v", have)
	}
	all := runs(5)
	keep(t, a, part("one", all[:2]))
	left := filepath.Join(dir, ".unfinished", "123-two.jsonl.gz") // of a crash
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	keep(t, a, part("two", all[2:]))
	keep(t, a, part("two", all[2:])) // again after a crash
	have := files(t, dir)
	if want := []string{".unfinished/123-two.jsonl.gz", "date=2026-01-31/one.jsonl.gz", "date=2026-01-31/two.jsonl.gz"}; !slices.Equal(have, want) {
		t.Errorf("want %v, have %v", want, have)
	}
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(left, old, old); err != nil {
		t.Fatal(err)
	}
	keep(t, a, part("one", all[:2]))
	if have := files(t, dir); slices.Contains(have, ".unfinished/123-two.jsonl.gz") {
		t.Errorf("want what a crash has left removed, have %v", have)
	}
	first, second := lines(t, filepath.Join(dir, "date=2026-01-31/one.jsonl.gz")), lines(t, filepath.Join(dir, "date=2026-01-31/two.jsonl.gz"))
	if len(first) != 2 || len(second) != 3 || second[2]["id"] != "run-004" {
		t.Errorf("have %v and %v", first, second)
	}
}

// A line is what the API answers, with the recording of a run that has one.
func TestALineIsTheAnswerOfTheAPI(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all := runs(2)
	keep(t, open(t, "file://"+dir, "jsonl"), part("one", all))
	for i, line := range lines(t, filepath.Join(dir, "date=2026-01-31", "one.jsonl.gz")) {
		var want map[string]any
		if err := json.Unmarshal(model.EncodeJSON(all[i]), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, line); diff != "" {
			t.Error(diff)
		}
	}
}

func TestRowsAreReadBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all := runs(40)
	keep(t, open(t, "file://"+dir, "parquet"), part("one", all))
	rows, err := parquet.ReadFile[archive.Row](filepath.Join(dir, "date=2026-01-31", "one.parquet"))
	if err != nil || len(rows) != len(all) {
		t.Fatalf("have %d rows, %v", len(rows), err)
	}
	for i, r := range rows {
		if r.ID != all[i].ID || !r.Finished.Equal(*all[i].Finished) || (r.Started == nil) != (all[i].Started == nil) ||
			string(r.EventPayload) != `{"said":"<ä> & \"b\""}` || string(r.SharedState) != `{"total":12345678901234567890}` ||
			r.Error != all[i].Error || r.Status != string(all[i].Status) || int(r.Generation) != i ||
			!strings.Contains(string(r.Handlers), `"pay/a/b"`) {
			t.Errorf("row %d: have %+v of %+v", i, r, all[i])
		}
	}
	if r := rows[1]; r.State != "open" || string(r.Recording) != `{"calls":[{"ref":"pay/a/b","attempt":1,"took_ns":7}]}` || string(rows[0].Recording) != "null" {
		t.Errorf("have the recordings %s in %q and %s", r.Recording, r.State, rows[0].Recording)
	}
	if want := [2]string{`{"ok":true}`, `{"city":"berlin"}`}; string(rows[1].Outputs) != want[0] || string(rows[1].Labels) != want[1] {
		t.Errorf("have %s and %s", rows[1].Outputs, rows[1].Labels)
	}
}

// s3 is a server with a bucket. answer, if not nil, answers before it, and reports whether it did.
func s3(t *testing.T, answer func(http.ResponseWriter, *http.Request) bool) (address string, backend *s3mem.Backend) {
	t.Helper()
	backend = s3mem.New()
	if err := backend.CreateBucket("runs"); err != nil {
		t.Fatal(err)
	}
	real := gofakes3.New(backend).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer == nil || !answer(w, r) {
			real.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return "s3://runs/prod/eu?endpoint=" + server.URL, backend
}

// object reads an object.
func object(t *testing.T, b *s3mem.Backend, name string) *gofakes3.Object {
	t.Helper()
	o, err := b.GetObject("runs", name, nil)
	if err != nil {
		t.Fatalf("object %s: %v", name, err)
	}
	return o
}

func TestABucketHasTheParts(t *testing.T) {
	credentials(t)
	for _, f := range archive.Formats() {
		address, backend := s3(t, nil)
		a := open(t, address, f.Name)
		all := runs(30)
		keep(t, a, part("one", all))
		size := int64(0)
		for range 2 { // the second replaces the first
			keep(t, a, part("one", all))
			suffix := map[string]string{"jsonl": ".jsonl.gz", "parquet": ".parquet"}[f.Name]
			o := object(t, backend, "prod/eu/date=2026-01-31/one"+suffix)
			if size != 0 && o.Size != size || o.Size == 0 {
				t.Errorf("%s: have %d and %d bytes", f.Name, size, o.Size)
			}
			size = o.Size
		}
		list, err := backend.ListBucket("runs", nil, gofakes3.ListBucketPage{})
		if err != nil || len(list.Contents) != 1 {
			t.Errorf("%s: want one object, have %v, %v", f.Name, list, err)
		}
	}
}

// credentials are those of a test.
func credentials(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "an-id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "a-secret")
	t.Setenv("AWS_REGION", "")
}

// What is wrong for good is an error at the start. What may pass is not.
func TestCheckTellsWhatMayPass(t *testing.T) {
	credentials(t)
	for name, c := range map[string]struct {
		status  int
		code    string
		away    bool
		message string
	}{
		"refused": {http.StatusForbidden, "AccessDenied", false, "s3:PutObject"},
		"broken":  {http.StatusInternalServerError, "InternalError", true, ""},
		"slow":    {http.StatusServiceUnavailable, "SlowDown", true, ""},
	} {
		address, backend := s3(t, func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(c.status)
			fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", c.code)
			return true
		})
		a, err := archive.Open(address, "jsonl")
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Check(t.Context()); err == nil || errors.Is(err, archive.ErrAway) != c.away || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: check says %v", name, err)
		}
		if err := a.Keep(t.Context(), part("one", runs(1))); err == nil {
			t.Errorf("%s: want no part kept", name)
		}
		if list, err := backend.ListBucket("runs", nil, gofakes3.ListBucketPage{}); err != nil || len(list.Contents) > 0 {
			t.Errorf("%s: have %v, %v", name, list, err)
		}
	}
	address, _ := s3(t, nil)
	a, err := archive.Open(strings.Replace(address, "s3://runs", "s3://other", 1), "jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Check(t.Context()); err == nil || errors.Is(err, archive.ErrAway) || !strings.Contains(err.Error(), "no bucket other") {
		t.Errorf("have %v of a bucket that is not there", err)
	}
}

// A server that fails for a while gets the part with the next try of one call. One that is away, or does not end its answer, gets it
// with another call.
func TestAServerThatIsAwayIsAskedAgain(t *testing.T) {
	credentials(t)
	var fail atomic.Int32
	slow := make(chan struct{})
	address, backend := s3(t, func(w http.ResponseWriter, r *http.Request) bool {
		switch n := fail.Add(-1); {
		case r.Method != http.MethodPut || n < 0:
			return false
		case n == 0:
			w.WriteHeader(http.StatusInternalServerError)
		default:
			<-slow
		}
		return true
	})
	a := open(t, address, "jsonl")
	fail.Store(1)
	keep(t, a, part("one", runs(3)))
	object(t, backend, "prod/eu/date=2026-01-31/one.jsonl.gz")
	fail.Store(1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Keep(ctx, part("two", runs(3))) }()
	for fail.Load() == 1000 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; !errors.Is(err, archive.ErrAway) {
		t.Errorf("want the archive away, have %v", err)
	}
	close(slow)
	fail.Store(0)
	keep(t, a, part("two", runs(3)))
	object(t, backend, "prod/eu/date=2026-01-31/two.jsonl.gz")
}

func TestWrongAddressesAreRefused(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	plain := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"/var/archive":                        "want file:///FOLDER or s3://",
		"file://archive":                      "absolute folder",
		"file:///a?x=1":                       "absolute folder",
		"s3://id:secret@runs/":                "AWS_ACCESS_KEY_ID",
		"s3://":                               "bucket",
		"s3://Runs_/x":                        "bucket",
		"s3://runs/x?zone=a":                  "region and endpoint",
		"s3://runs/x?region=a&region=b":       "region once",
		"s3://runs/x?endpoint=http://h/path":  "want an endpoint such as",
		"s3://runs/x#y":                       "#y",
		"file://" + filepath.ToSlash(missing): "does not make it",
		"file://" + filepath.ToSlash(plain):   "is no folder",
	} {
		a, err := archive.Open(address, "jsonl")
		if err == nil {
			err = a.Check(t.Context())
		}
		if err == nil || errors.Is(err, archive.ErrAway) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: want %q, have %v", address, want, err)
		}
	}
	if _, err := archive.Open("file:///", "csv"); err == nil {
		t.Error("want the format csv refused")
	}
}

func BenchmarkKeep(b *testing.B) {
	for _, f := range archive.Formats() {
		b.Run(f.Name, func(b *testing.B) {
			a, err := archive.Open("file://"+b.TempDir(), f.Name)
			if err != nil {
				b.Fatal(err)
			}
			all := runs(1000)
			for b.Loop() {
				if err := a.Keep(b.Context(), part("one", all)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(all)), "µs/run")
		})
	}
}
