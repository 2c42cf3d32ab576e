package queue

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/pgkit"
)

// hints tell all processes which types have ready tasks.
type hints struct {
	*db
	direct string // address of the server itself
	log    *slog.Logger

	watch   watch
	horizon horizon
	tell    chan struct{}
}

// watch wakes watchers of types that have ready tasks.
type watch struct {
	mu      sync.Mutex // guards the following
	waiting map[*watcher]struct{}
	untold  map[string]place // hints to send to other processes, with their first places
}

// A watcher waits for some types, or for all if it has none.
type watcher struct {
	types map[string]bool
	woken chan struct{}
}

// WatchTasks implements [store.TaskWork].
func (h *hints) WatchTasks(types []string) (<-chan struct{}, func()) {
	w := &watcher{types: map[string]bool{}, woken: make(chan struct{}, 1)}
	for _, t := range types {
		w.types[t] = true
	}
	h.watch.mu.Lock()
	defer h.watch.mu.Unlock()
	if h.watch.waiting == nil {
		h.watch.waiting = map[*watcher]struct{}{}
	}
	h.watch.waiting[w] = struct{}{}
	return w.woken, func() {
		h.watch.mu.Lock()
		defer h.watch.mu.Unlock()
		delete(h.watch.waiting, w)
	}
}

// wake wakes this process's watchers of types, or all watchers.
func (w *watch) wake(types []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.waiting {
		if len(types) == 0 || slices.ContainsFunc(types, func(t string) bool { return one.types[t] }) {
			pgkit.Signal(one.woken)
		}
	}
}

// hint tells all processes that these types have ready tasks.
func (h *hints) hint(types ...string) {
	from := make(map[string]place, len(types))
	for _, t := range types {
		from[t] = headOfQueue
	}
	h.hintFrom(from)
}

// hintFrom is hint, but no new task is before these places.
func (h *hints) hintFrom(from map[string]place) {
	if len(from) == 0 {
		return
	}
	h.horizon.lower(from)
	h.watch.wake(slices.Collect(maps.Keys(from)))
	h.watch.mu.Lock()
	if h.watch.untold == nil {
		h.watch.untold = map[string]place{}
	}
	for t, p := range from {
		if other, ok := h.watch.untold[t]; ok {
			p = earlier(other, p)
		}
		h.watch.untold[t] = p
	}
	h.watch.mu.Unlock()
	pgkit.Signal(h.tell)
}

// A hinted is the encoded form of one type in a hint.
type hinted struct {
	Type string `json:"t"`
	Rank int    `json:"r"`
	At   int64  `json:"a"` // microseconds
}

func encodeHint(from map[string]place) string {
	list := make([]hinted, 0, len(from))
	for _, t := range slices.Sorted(maps.Keys(from)) {
		list = append(list, hinted{t, from[t].rank, from[t].at.UnixMicro()})
	}
	text, err := json.Marshal(list)
	if err != nil || len(text) > hintBytes {
		return "[]" // any
	}
	return string(text)
}

// decodeHint decodes a hint. An unknown text means all types. Callers' transactions send only
// types.
func decodeHint(text string) map[string]place {
	var list []hinted
	from := map[string]place{}
	if err := json.Unmarshal([]byte(text), &list); err == nil {
		for _, one := range list {
			from[one.Type] = place{one.Rank, time.UnixMicro(one.At).UTC()}
		}
		return from
	}
	var types []string
	if err := json.Unmarshal([]byte(text), &types); err == nil {
		for _, t := range types {
			from[t] = headOfQueue
		}
	}
	return from
}

// The schema is the channel, so that several installations in one database do not wake each other.
const (
	sendHint    = "select pg_notify('procaas tasks ' || current_schema, $1)"
	listenHints = "select format('listen %I', 'procaas tasks ' || current_schema)"
)

// These are the shortest time between two hints of a process, and the longest text of one.
// PostgreSQL allows 8000 bytes.
const (
	hintGap   = 2 * time.Millisecond
	hintBytes = 7000
)

// notify sends hints. A lost hint costs a worker one polling interval.
func (h *hints) notify(ctx context.Context) {
	pgkit.Tell(ctx, h.tell, hintGap, func() error {
		h.watch.mu.Lock()
		text := encodeHint(h.watch.untold)
		clear(h.watch.untold)
		h.watch.mu.Unlock()
		_, err := h.pool.Exec(ctx, sendHint, text)
		return err
	})
}

// listen receives the hints of all processes until ctx ends, and keeps trying. Behind a pooler it
// would receive nothing, so it does not try there.
func (h *hints) listen(ctx context.Context) {
	if h.pooled && h.direct == "" {
		h.log.Info("hints of tasks are not heard through a pooler, they are found by polling; give the address of the server itself, too")
		return
	}
	pgkit.Listen(ctx, h.log, "hints of tasks are not heard, they are found by polling meanwhile", h.hear)
}

// listener returns a connection of its own: a direct one, or one taken out of the pool.
func (h *hints) listener(ctx context.Context) (*pgx.Conn, error) {
	if h.direct != "" {
		return pgx.Connect(ctx, h.direct)
	}
	return pgkit.Take(ctx, h.pool)
}

// hear receives hints as long as its connection lasts.
func (h *hints) hear(ctx context.Context) error {
	conn, err := h.listener(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := pgkit.Subscribe(ctx, conn, listenHints); err != nil {
		return err
	}
	h.horizon.listens(true)
	defer h.horizon.listens(false)
	h.watch.wake(nil) // hints may have been lost before
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		from := decodeHint(n.Payload)
		if len(from) == 0 {
			h.horizon.lowerAll()
		} else {
			h.horizon.lower(from)
		}
		h.watch.wake(slices.Collect(maps.Keys(from)))
	}
}
