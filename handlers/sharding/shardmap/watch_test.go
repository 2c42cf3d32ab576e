package shardmap

import (
	"context"
	"testing"

	"procaas/dsl/spec"
	"procaas/handlers/sharding/language"
)

// What is loaded is no change. So whoever asked before has no position from which it would seem that nothing has changed since.
func TestWatchersGetNoPositionBeforeAllIsLoaded(t *testing.T) {
	t.Parallel()
	s := &Service{again: make(chan struct{})}
	m := s.newMap(&language.ShardMap{ID: "mail", Key: spec.Names{"user"}, Strategy: "directory", KeyType: "text"})
	s.maps = map[string]*Map{"mail": m}
	atOnce, cancel := context.WithCancel(t.Context())
	cancel()
	before, err := s.Watch(atOnce, "mail", "")
	if err != nil || before.Next != "" || !before.Reset {
		t.Errorf("before: %+v, %v", before, err)
	}
	m.index.put(Placement{Key: "42", Shard: "s1", State: Ready}, false)
	close(m.loaded)
	after, err := s.Watch(atOnce, "mail", before.Next)
	if err != nil || after.Next == "" || !after.Reset {
		t.Errorf("after: %+v, %v", after, err)
	}
}
