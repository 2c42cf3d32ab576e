package shardmap

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// The table answers like a map of Go.
func TestKeyTableIsAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table, model, noted := newKeyTable(), map[string]Placement{}, map[string]bool{}
		keys := rapid.OneOf(
			rapid.StringMatching("[0-9./:@_-]{1,3}"), rapid.StringMatching("[a-z]{1,2}/é?[0-9]{0,3}"),
			rapid.Map(rapid.IntRange(maxKey-1, maxKey+1), func(n int) string { return strings.Repeat("k", n) }),
		)
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "times") {
					p := Placement{
						Key: keys.Draw(t, "key"), Shard: rapid.SampledFrom([]string{"s1", "s2", "s3"}).Draw(t, "shard"),
						Epoch: rapid.OneOf(rapid.Int64Range(0, 9), rapid.Int64Range(maxEpoch-1, maxEpoch+1)).Draw(t, "epoch"),
						State: rapid.SampledFrom(storedStates[:]).Draw(t, "state"), Owned: rapid.Bool().Draw(t, "owned"),
					}
					old, known := model[p.Key]
					want := len(p.Key) <= maxKey && p.Epoch <= maxEpoch && (!known || newer(p, &old))
					if want {
						model[p.Key] = p
					}
					if have := table.put(p); have != want {
						t.Fatalf("put %+v after %+v: %v", p, old, have)
					}
				}
			},
			"note": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				_, known := model[key]
				if have, there := table.noted(key); have != noted[key] || there != known {
					t.Fatalf("noted %q: %v, %v", key, have, there)
				}
				if have, there := table.note(key); have != (known && !noted[key]) || there != known {
					t.Fatalf("note %q: %v, %v", key, have, there)
				}
				noted[key] = known
			},
			"forget": func(*rapid.T) {
				table.forget()
				clear(noted)
			},
			"": func(t *rapid.T) {
				for key, want := range model {
					if have, ok := table.get(key); !ok || have != want {
						t.Fatalf("get: %+v %v, want %+v", have, ok, want)
					}
				}
				if key := keys.Draw(t, "any"); model[key] == (Placement{}) {
					if p, ok := table.get(key); ok {
						t.Fatalf("get of an unknown key: %+v", p)
					}
				}
				if int(table.count.Load()) != len(model) {
					t.Fatalf("%d keys, want %d", table.count.Load(), len(model))
				}
			},
		})
	})
}

// Readers see each placement as it was put, while others are added and change.
func TestKeyTableIsReadWhileItChanges(t *testing.T) {
	t.Parallel()
	const keys, epochs = 300, 40
	table := newKeyTable()
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for epoch := range int64(epochs) {
				for key := w; key < keys; key += 2 {
					table.put(Placement{Key: fmt.Sprint(key), Shard: fmt.Sprint("s", epoch), Epoch: epoch, State: Ready, Owned: epoch%2 == 1})
					table.note(fmt.Sprint(key))
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		for key := range keys {
			p, ok := table.get(fmt.Sprint(key))
			if ok && (p.Shard != fmt.Sprint("s", p.Epoch) || p.Owned != (p.Epoch%2 == 1) || p.State != Ready) {
				t.Fatalf("key %d: a mixture: %+v", key, p)
			}
			if ended && p.Epoch != epochs-1 {
				t.Fatalf("key %d: an old placement: %+v", key, p)
			}
		}
	}
}

// A key of seven digits takes at most 24 bytes, also when parts of the table have just grown.
func TestKeysTakeLittleMemory(t *testing.T) {
	t.Parallel()
	table := newKeyTable()
	for i := range 100_000 {
		table.put(Placement{Key: fmt.Sprint(1_000_000 + i), Shard: fmt.Sprint("s", i%700), Epoch: 1, State: Ready})
		if n := i + 1; n%10_000 == 0 {
			bytes := 0
			for i := range table.stripes {
				bytes += 4*cap(table.stripes[i].slots) + cap(table.stripes[i].records)
			}
			if each := float64(bytes) / float64(n); each > 24 {
				t.Errorf("%d keys take %.1f bytes each", n, each)
			}
		}
	}
}

// What was asked for is noted once, also a key that was read from the database and is not in memory yet.
func TestNotesAreOfAllPlacements(t *testing.T) {
	t.Parallel()
	x := &index{keys: newKeyTable()}
	x.keys.put(Placement{Key: "known", Shard: "s1", Epoch: 1, State: Active})
	for _, key := range []string{"known", "not-yet", "#7", "[m"} {
		if x.noted(key) || !x.note(key) || !x.noted(key) || x.note(key) {
			t.Errorf("%s: want it noted once", key)
		}
	}
	x.forgetNotes()
	if x.noted("known") || x.noted("not-yet") {
		t.Error("want all notes forgotten")
	}
}
