package inbox

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"procaas/engine/store"
)

// Cells shows an inbox over several databases, and changes it for operators.
type Cells interface {
	// Inbox returns which database has which slots.
	Inbox(ctx context.Context) (View, error)

	// Loads returns the load of each slot: the unfinished runs, the entities and the tasks of its
	// keys. The load of a slot in an unreachable database is 0.
	Loads(ctx context.Context) ([]int64, error)

	// MoveSlots begins a move. With dry it only returns what it would do. The error is an
	// [*OrderError] if the order is invalid.
	MoveSlots(ctx context.Context, o Order, by store.Actor, dry bool) (Move, error)

	// RemoveCell permanently removes a database from the inbox. It must be empty. With forget it
	// may have ended runs, which no list shows after that. The error is an [*OrderError] if it
	// cannot be removed.
	RemoveCell(ctx context.Context, cell string, forget bool, by store.Actor) error
}

// A View is an inbox over several databases.
type View struct {
	Inbox string `json:"inbox" doc:"The unique name of the inbox."`
	Slots int    `json:"slots" doc:"The number of slots."`
	Cells []Cell `json:"cells" doc:"The databases, the home first."`
	Moves []Move `json:"moves" doc:"The current moves, then the latest ended moves, newest first."`
	Ended Ended  `json:"ended" doc:"The number of moves that have ended, since the inbox has several databases."`

	Loads []int64 `json:"loads,omitempty" doc:"Only if asked: the load of each slot, which is the number of its runs that have not ended, its entities and its tasks."`
}

// A Cell is one of the databases.
type Cell struct {
	Name    string `json:"name" doc:"The name. The database of --store is home."`
	Slots   int    `json:"slots" doc:"The number of its slots."`
	Spans   string `json:"spans" doc:"Which ones." example:"0-2047,4000"`
	Waiting int    `json:"waiting" doc:"The number of its waiting runs; 0 if it cannot be reached."`
	Frozen  int    `json:"frozen" doc:"The number of its slots that accept no events now, because they move."`
	Outbox  int    `json:"outbox" doc:"The number of its events for other cells, counted up to 1000."`

	OutboxOldestS float64 `json:"outbox_oldest_s" doc:"The age of the oldest of them in seconds; 0 if there is none."`

	Away string `json:"away,omitempty" doc:"The reason why it cannot be reached."`
}

// Ended counts moves.
type Ended struct {
	Moved  int64 `json:"moved" doc:"The moves that completed."`
	Undone int64 `json:"undone" doc:"The moves that were given up, after some of their slots or none."`
}

// A Move is slots that move from one database to another.
type Move struct {
	ID      string     `json:"id" doc:"The id of the move; empty if it was only planned."`
	From    string     `json:"from" doc:"The cell that has the slots."`
	To      string     `json:"to" doc:"The target cell."`
	Slots   int        `json:"slots" doc:"How many."`
	Moved   int        `json:"moved" doc:"The number of slots that are already in the target. Slots move in parts."`
	Step    string     `json:"step" enum:"planned,copying,freezing,switched,opened,undoing,moved,undone" doc:"The current step."`
	By      string     `json:"by,omitempty" doc:"Who ordered it."`
	Reason  string     `json:"reason,omitempty" doc:"Why."`
	Begun   time.Time  `json:"begun" doc:"When it began."`
	Ended   *time.Time `json:"ended" doc:"When it ended; null before."`
	Rows    int64      `json:"rows" doc:"The number of copied rows that this node knows of."`
	FrozenS float64    `json:"frozen_s" doc:"The longest time in seconds that a slot accepted no events."`
	Error   string     `json:"error,omitempty" doc:"Why it was undone."`
}

// An Order asks for a move of slots.
type Order struct {
	Slots []int
	To    string
	Wait  time.Duration // for runs in flight, with the slots frozen; 0 means the default
}

// An OrderError says why an order is refused.
type OrderError struct{ Message string }

// Error implements error.
func (e *OrderError) Error() string { return e.Message }

// ParseSlots parses slots such as 0-99,200.
func ParseSlots(text string) (slots []int, err error) {
	bad := func(part string) ([]int, error) {
		return nil, fmt.Errorf("slots: want numbers and spans of 0 to %d, such as 0-99,200, have %q", store.InboxSlots-1, part)
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isSpan := strings.Cut(strings.TrimSpace(part), "-")
		if !isSpan {
			last = first
		}
		from, err := strconv.Atoi(first)
		if err != nil {
			return bad(part)
		}
		to, err := strconv.Atoi(last)
		if err != nil || from < 0 || to < from || to >= store.InboxSlots {
			return bad(part)
		}
		for n := from; n <= to; n++ {
			slots = append(slots, n)
		}
	}
	return slots, nil
}

// FormatSlots formats sorted slots for [ParseSlots].
func FormatSlots(slots []int) string {
	var b strings.Builder
	for i := 0; i < len(slots); {
		to := i
		for to+1 < len(slots) && slots[to+1] == slots[to]+1 {
			to++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(slots[i]))
		if to > i {
			b.WriteString("-" + strconv.Itoa(slots[to]))
		}
		i = to + 1
	}
	return b.String()
}
