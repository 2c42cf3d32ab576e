package source

import (
	"testing"

	"github.com/fsnotify/fsnotify"
)

func TestWhatMattersToWatchers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		op   fsnotify.Op
		want bool
	}{
		{"flows/a.yaml", fsnotify.Write, true},
		{"flows/a.yml", fsnotify.Rename, true},
		{"flows/order.schema.json", fsnotify.Write, true},
		{"flows/removed-directory", fsnotify.Remove, true},
		{"flows/a.yaml", fsnotify.Chmod, false},
		{"flows/a.yaml", fsnotify.Chmod | fsnotify.Write, true},
		{"flows/dev.db-wal", fsnotify.Write, false},
		{"flows/dev.db", fsnotify.Write, false},
		{"flows/.a.yaml.swp", fsnotify.Create, false},
	} {
		if have := matters(fsnotify.Event{Name: c.name, Op: c.op}); have != c.want {
			t.Errorf("%s %s: want %t, have %t", c.op, c.name, c.want, have)
		}
	}
}
