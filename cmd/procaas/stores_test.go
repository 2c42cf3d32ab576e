package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"procaas/cmd/procaas/internal/serve"
	"procaas/engine/enginetest"
	"procaas/engine/store"
)

// TestStoresOfEarlierVersions opens stores that earlier versions wrote. Everything that their
// nodes left behind is still there: runs, entities, tasks, documents, settings, and the audit with
// its chain. See testdata/stores.
func TestStoresOfEarlierVersions(t *testing.T) {
	t.Parallel()
	for _, dir := range earlierVersions(t) {
		version := filepath.Base(dir)
		for _, kind := range kindsOf(dir) {
			t.Run(version+"/"+kind, func(t *testing.T) {
				t.Parallel()
				f := earlierStore(t, dir, kind)
				o, err := f.Stores()
				if err != nil {
					t.Fatal(err)
				}
				s, err := o.Open(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				have := contents(t, s)
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if kind == "postgres" {
					have += shards(t, o.DSN)
				}
				golden(t, filepath.Join("..", "stores", version, kind+".golden"), have)
			})
		}
	}
}

// earlierVersions returns the folders with the stores of earlier versions.
func earlierVersions(t *testing.T) (dirs []string) {
	t.Helper()
	made, err := filepath.Glob(filepath.Join("..", "..", "testdata", "stores", "*", "sqlite.db.gz"))
	if err != nil || len(made) < 2 {
		t.Fatal("have", made, err)
	}
	for _, file := range made {
		dirs = append(dirs, filepath.Dir(file))
	}
	return dirs
}

// kindsOf returns the kinds of stores of a version.
func kindsOf(dir string) []string {
	kinds := []string{"sqlite", "postgres", "cells"}
	if filepath.Base(dir) != "131cd4df" { // it had no encryption, and no trials
		kinds = append(kinds, "sealed", "sealed-postgres", "canary", "shadow")
	}
	return kinds
}

// earlierStore copies a store that an earlier version wrote, and returns the flags of a node on the copy.
func earlierStore(t *testing.T, dir, kind string) serve.Flags {
	t.Helper()
	f := serve.Flags{Migrate: true}
	switch kind {
	case "sqlite", "sealed", "canary", "shadow":
		path := filepath.Join(t.TempDir(), "store.db")
		if err := os.WriteFile(path, unzip(t, filepath.Join(dir, kind+".db.gz")), 0o600); err != nil {
			t.Fatal(err)
		}
		f.Store = "sqlite:" + path
		if kind == "sealed" {
			f.Keys = filepath.Join(dir, "..", "keys.json")
		}
	case "postgres", "sealed-postgres":
		f.Store = restore(t, filepath.Join(dir, kind+".sql.gz"))
		if kind != "postgres" {
			f.Keys = filepath.Join(dir, "..", "keys.json")
		}
	case "cells":
		f.Store = restore(t, filepath.Join(dir, "home.sql.gz"))
		if err := f.Set("cell", "b="+restore(t, filepath.Join(dir, "b.sql.gz"))); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// restore loads a dump into a schema of its own, and returns its address.
func restore(t *testing.T, file string) string {
	t.Helper()
	dsn := enginetest.Postgres(t)
	db, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(t.Context()))
	if _, err := db.PgConn().Exec(t.Context(), string(unzip(t, file))).ReadAll(); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return dsn
}

// shards lists the shards that a store of PostgreSQL knows. No port of the store has them.
func shards(t *testing.T, dsn string) string {
	t.Helper()
	db, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(t.Context()))
	var all string
	if err := db.QueryRow(t.Context(), `select string_agg(format(E'shard %s of %s, map %s, at %s\n', s.id, s.map, m.strategy, h.address), ''
		order by s.id) from shards s join shard_maps m on m.id = s.map join shard_hosts h on h.map = s.map and h.shard = s.id`).Scan(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

func unzip(t *testing.T, file string) []byte {
	t.Helper()
	packed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// contents lists what is in a store, as its ports have it.
func contents(t *testing.T, s store.Store) string {
	t.Helper()
	var b strings.Builder
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	runs, _, err := s.Runs.List(ctx, store.RunFilter{Limit: 1000})
	must(err)
	keys := map[[2]string]bool{}
	var lines []string
	for _, r := range runs {
		full, err := s.Runs.Run(ctx, r.ID)
		must(err)
		lines = append(lines, fmt.Sprintf("run %s %s, event %s, flow %q, key %q, %s, failed %q, error %q, checkpoint %t", r.Pipeline, r.ID,
			full.Event.ID, r.Flow, r.Key, full.Status, full.FailedPath, full.Error, len(full.Checkpoint) > 0))
		if r.Flow != "" {
			keys[[2]string{r.Flow, r.Key}] = true
		}
	}
	for k := range keys {
		e, err := s.Runs.Entity(ctx, k[0], k[1])
		if errors.Is(err, store.ErrNotFound) { // its flow has no shared state
			continue
		}
		must(err)
		lines = append(lines, fmt.Sprintf("entity %s %s, shared %s, %d unfinished", e.Flow, e.Key, e.Shared, e.Waiting))
	}
	types, err := s.Tasks.Admin.TaskStats(ctx)
	must(err)
	for _, of := range types {
		lines = append(lines, fmt.Sprintf("tasks %s %s %q", of.Type, of.Mode, of.Reason))
		for _, state := range []store.TaskState{
			store.TaskScheduled, store.TaskReady, store.TaskWaiting, store.TaskStarting, store.TaskRunning, store.TaskCompleted,
			store.TaskFailed, store.TaskCancelled,
		} {
			tasks, err := s.Tasks.Admin.PeekTasks(ctx, store.TaskFilter{Type: of.Type, State: state, Limit: 100})
			must(err)
			for _, q := range tasks {
				lines = append(lines, fmt.Sprintf("task %s %d %s, key %q, unique %q, worker %q, payload %s, error %q", q.Type, q.ID, q.State, q.Key,
					q.Unique, q.Worker, q.Payload, q.Error))
			}
		}
	}
	for _, kind := range []string{"assignment", "cluster-state", "moves", "observation", "levers"} {
		documents, err := s.Documents.DocumentsOf(ctx, kind, "")
		must(err)
		for _, d := range documents {
			lines = append(lines, fmt.Sprintf("document %s %s, version %d: %s", d.Kind, d.Name, d.Version, d.Value))
		}
	}
	controls, revision, err := s.Settings.Controls(ctx)
	must(err)
	for _, path := range slices.Sorted(maps.Keys(controls)) {
		lines = append(lines, fmt.Sprintf("control %s %s", path, controls[path].Value))
	}
	tokens, _, err := s.Tokens.AllTokens(ctx)
	must(err)
	for name, token := range tokens {
		lines = append(lines, fmt.Sprintf("token %s %s %x", name, token.Value, token.Hash))
	}
	current, err := s.Bundles.Current(ctx)
	must(err)
	files, err := s.Bundles.Bundle(ctx, current)
	must(err)
	lines = append(lines, fmt.Sprintf("definition %s, %d bytes", current, len(files)), fmt.Sprintf("settings %d", revision))
	outages, _, err := s.Degradation.Outages(ctx)
	must(err)
	if len(outages) > 0 {
		lines = append(lines, fmt.Sprintf("outages %s", outages))
	}
	configs, _, err := s.Settings.Configs(ctx)
	must(err)
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		lines = append(lines, fmt.Sprintf("config %s %s", name, configs[name].Value))
	}
	must(s.Usage.UsageSince(ctx, "", func(u store.Use) { lines = append(lines, fmt.Sprintf("usage %+v", u)) }))
	audit, err := s.Audits.Audit(ctx, store.AuditFilter{Limit: 100})
	must(err)
	for _, a := range audit {
		lines = append(lines, fmt.Sprintf("audit %04d %s %s by %s for %q: %s", a.Revision, a.Kind, a.Name, a.By.Name, a.By.Reason, a.After))
	}
	chains, err := s.Audits.VerifyAudit(ctx, nil)
	must(err)
	for _, c := range chains {
		lines = append(lines, fmt.Sprintf("chain %s of %d records, head %s, broken %t", c.Cell, c.Records, c.Head, c.Break != nil))
	}
	slices.Sort(lines)
	for _, l := range lines {
		fmt.Fprintln(&b, l)
	}
	return b.String()
}
