package sealed_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"procaas/engine/model"
	"procaas/engine/sealed"
	"procaas/engine/store"
)

func vault(s store.Store, file string) *sealed.Vault {
	return sealed.NewVault(s.Documents, file, slog.New(slog.DiscardHandler))
}

var ann = store.Actor{Name: "ann", Reason: "why"}

// refused opens a store with a file, and returns why it cannot.
func refused(t testing.TB, s store.Store, file string) string {
	t.Helper()
	err := (&sealed.Ring{File: file, Log: slog.New(slog.DiscardHandler)}).Store(t.Context(), &s)
	if _, ok := errors.AsType[*sealed.KeyError](err); !ok {
		t.Fatalf("with %q: want a KeyError, have %v", file, err)
	}
	return err.Error()
}

// TestKeysOfOthersAreRefused opens a sealed store without its keys, and with those of another one.
func TestKeysOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	bare, mine := inMemory(), file(t)
	accept(t, seal(t, bare, mine), intake("a"))
	for _, c := range []struct{ file, want string }{
		{"", "--encryption-keys"},
		{file(t), "has only"},
		{mine + "-none", "procaas store keys new"},
	} {
		if text := refused(t, bare, c.file); !strings.Contains(text, c.want) {
			t.Errorf("with %q: %s", c.file, text)
		}
	}
}

// TestRotatedKeysReadEverything rotates both kinds of keys under a node that is open.
func TestRotatedKeysReadEverything(t *testing.T) {
	t.Parallel()
	bare, keys := inMemory(), file(t)
	first, err := sealed.ReadFile(keys)
	must(t, err)
	old := seal(t, bare, keys)
	accept(t, old, intake("a"))
	_, err = sealed.NewKey(keys)
	must(t, err)
	_, err = vault(bare, keys).Rotate(t.Context(), ann)
	must(t, err)
	_, err = sealed.RemoveKey(keys, first.Primary) // no data key needs it any more
	must(t, err)
	fresh := seal(t, bare, keys)
	accept(t, fresh, intake("b"))
	for _, s := range []store.Store{old, fresh} {
		for _, run := range []string{"a", "b"} {
			r, err := s.Runs.Run(t.Context(), run)
			must(t, err)
			equal(t, "payload of "+run, r.Event.Payload, intake(run).Event.Payload)
		}
		if again := accept(t, s, intake("a"), intake("b")); !again[0].Duplicate || !again[1].Duplicate {
			t.Errorf("want duplicates, have %+v", again)
		}
	}
	all, active, err := vault(bare, "").List(t.Context())
	must(t, err)
	if len(all) != 3 || active != all[2].ID || all[0].KEK == first.Primary {
		t.Errorf("have keys %+v, active %s", all, active)
	}
	a, err := bare.Runs.Run(t.Context(), "a")
	must(t, err)
	b, err := bare.Runs.Run(t.Context(), "b")
	must(t, err)
	if text := a.Event.Payload.(string); !strings.Contains(text, all[1].ID) {
		t.Errorf("run a was sealed again: %s", text)
	}
	if text := b.Event.Payload.(string); !strings.Contains(text, active) {
		t.Errorf("run b is not sealed with the new key: %s", text)
	}
}

// TestEncryptionBeginsAndEnds seals what comes after a time, and after another one no more. Everything stays readable, and duplicates
// are recognised whenever the first event came.
func TestEncryptionBeginsAndEnds(t *testing.T) {
	t.Parallel()
	bare, keys := inMemory(), file(t)
	accept(t, bare, intake("plain"))
	s := seal(t, bare, keys)
	accept(t, s, intake("sealed"))
	must(t, vault(bare, keys).Stop(t.Context(), ann))
	ended := seal(t, bare, keys)
	accept(t, ended, intake("again"))
	for _, c := range []struct {
		run    string
		sealed bool
	}{{"plain", false}, {"sealed", true}, {"again", false}} {
		r, err := bare.Runs.Run(t.Context(), c.run)
		must(t, err)
		if _, text := r.Event.Payload.(string); text != c.sealed {
			t.Errorf("%s: have %v in the store", c.run, r.Event.Payload)
		}
		for _, s := range []store.Store{s, ended} {
			r, err := s.Runs.Run(t.Context(), c.run)
			must(t, err)
			equal(t, c.run, r.Event.Payload, intake(c.run).Event.Payload)
			other := intake(c.run)
			other.Hash = "another"
			if out := accept(t, s, intake(c.run), other); !out[0].Duplicate || !errors.Is(out[1].Err, store.ErrConflict) {
				t.Errorf("%s: have %+v", c.run, out)
			}
		}
	}
	all, _, err := vault(bare, "").List(t.Context())
	must(t, err)
	for _, k := range all {
		refused(t, bare, "")
		must(t, vault(bare, keys).Remove(t.Context(), k.ID, ann))
	}
	accept(t, seal(t, bare, ""), intake("last")) // a node needs no keys now
	accept(t, ended, intake("last"))             // and one that runs does not begin anew
}

// TestEncryptionBeginsAlone starts nodes with and without keys beside each other.
func TestEncryptionBeginsAlone(t *testing.T) {
	t.Parallel()
	bare, keys := inMemory(), file(t)
	plain := seal(t, bare, "")
	node := join(t, plain)
	ring, other := &sealed.Ring{File: keys, Log: slog.New(slog.DiscardHandler)}, bare
	if err := ring.Store(t.Context(), &other); err == nil || !strings.Contains(err.Error(), "without encryption: n.") {
		t.Errorf("beside a node without keys: %v", err)
	}
	must(t, plain.Ledger.Leave(t.Context(), node, nil))
	s := seal(t, bare, keys)
	other = seal(t, bare, keys)
	late := seal(t, bare, "") // opened before there are keys
	join(t, s)
	join(t, other)
	if _, err := late.Ledger.Join(t.Context(), "late", time.Hour); err == nil {
		t.Error("a node without keys has joined")
	}
	nodes, err := s.Ledger.Nodes(t.Context())
	must(t, err)
	for _, n := range nodes {
		if n.Name == "late" && n.Alive {
			t.Error("it is still there")
		}
	}
}

// TestWriterWithoutKeysIsSeen lets a node without keys join between the look at the nodes and the first data key.
func TestWriterWithoutKeysIsSeen(t *testing.T) {
	t.Parallel()
	bare, keys := inMemory(), file(t)
	s := seal(t, bare, keys)
	node := join(t, bare)
	if _, err := s.Inbox.Accept(t.Context(), 0, []model.Intake{intake("a")}); err == nil {
		t.Error("it has sealed an event beside a node without keys")
	}
	must(t, bare.Ledger.Leave(t.Context(), node, nil))
	accept(t, s, intake("a"))
	join(t, s)
}

// TestSearchesAreRefused asks for texts that the store has only sealed.
func TestSearchesAreRefused(t *testing.T) {
	t.Parallel()
	s := seal(t, inFile(t, t.TempDir()+"/store.db"), file(t))
	f := store.TaskFilter{Type: "mail", Error: "x"}
	_, peek := s.Tasks.Admin.PeekTasks(t.Context(), f)
	_, retry := s.Tasks.Admin.RetryTasks(t.Context(), f)
	_, move := s.Tasks.Admin.MoveTasks(t.Context(), f, "other")
	_, cancel := s.Tasks.Queue.CancelTasks(t.Context(), f)
	for _, err := range []error{peek, retry, move, cancel} {
		if !errors.Is(err, store.ErrSealed) {
			t.Errorf("have %v", err)
		}
	}
}

// TestTextThatLooksSealedDamagesOnlyItsRun has a payload that only looks sealed, from the time before encryption. Other runs go on.
func TestTextThatLooksSealedDamagesOnlyItsRun(t *testing.T) {
	t.Parallel()
	bare := inMemory()
	looks := intake("looks")
	looks.Key, looks.Event.Payload = "looks", "sealed:0123456789abcdef:QUJD"
	accept(t, bare, looks, intake("sound"))
	s := seal(t, bare, file(t))
	all, err := s.Ledger.Claim(t.Context(), join(t, s), 10, "")
	must(t, err)
	damaged := map[string]bool{}
	for _, c := range all {
		damaged[c.ID] = c.Damage != nil
	}
	if len(damaged) != 2 || !damaged["looks"] || damaged["sound"] {
		t.Errorf("have %v", damaged)
	}
}

// TestNodeDoesNotSealWithARemovedKey has a node whose file lacks the newest key-encryption key, until the data key that it has is removed.
func TestNodeDoesNotSealWithARemovedKey(t *testing.T) {
	t.Parallel()
	bare, keys := inMemory(), file(t)
	behind := seal(t, bare, keys)
	accept(t, behind, intake("a"))
	before, active, err := vault(bare, "").List(t.Context())
	must(t, err)
	ahead := filepath.Join(t.TempDir(), "ahead.json")
	data, err := os.ReadFile(keys)
	must(t, err)
	must(t, os.WriteFile(ahead, data, 0o600))
	_, err = sealed.NewKey(ahead)
	must(t, err)
	_, err = vault(bare, ahead).Rotate(t.Context(), ann)
	must(t, err)
	accept(t, seal(t, bare, ahead), intake("b"))
	if _, err := behind.Runs.Run(t.Context(), "b"); err == nil {
		t.Fatal("it reads what it has no key for")
	}
	accept(t, behind, intake("c")) // others can read it
	for _, k := range before {
		if k.ID == active {
			must(t, vault(bare, ahead).Remove(t.Context(), k.ID, ann))
		}
	}
	if _, err := behind.Runs.Run(t.Context(), "b"); err == nil { // it learns of the removal
		t.Fatal("it reads what it has no key for")
	}
	_, err = behind.Inbox.Accept(t.Context(), 0, []model.Intake{intake("d")})
	if _, ok := errors.AsType[*sealed.KeyError](err); !ok || !strings.Contains(err.Error(), "was removed from the store") {
		t.Errorf("it has sealed with a key that is gone: %v", err)
	}
}

// TestStoppedKeyIsStillInUse stops encryption with a key that is old. Nodes may seal with it until they hear of it.
func TestStoppedKeyIsStillInUse(t *testing.T) {
	t.Parallel()
	bare, keys := inMemory(), file(t)
	accept(t, seal(t, bare, keys), intake("a"))
	d, err := bare.Documents.Document(t.Context(), "encryption", "keys")
	must(t, err)
	old := regexp.MustCompile(`"created":"\d+`).ReplaceAll(d.Value, []byte(`"created":"2001`))
	_, err = bare.Documents.WriteDocuments(t.Context(), 0, []store.DocumentWrite{{Kind: d.Kind, Name: d.Name, Version: d.Version, Value: old}}, nil)
	must(t, err)
	settled := func() time.Time {
		since, err := vault(bare, keys).Settled(t.Context())
		must(t, err)
		return since
	}
	if since := settled(); since.Year() != 2001 {
		t.Errorf("the key is active since %v", since)
	}
	must(t, vault(bare, keys).Stop(t.Context(), ann))
	if since := settled(); time.Since(since) > time.Hour {
		t.Errorf("encryption is stopped since %v", since)
	}
}
