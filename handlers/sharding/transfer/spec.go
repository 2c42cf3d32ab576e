package transfer

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Spec says what to move, and within which bounds.
type Spec struct {
	// ID names the transfer, its slots and its publications: lower-case letters,
	// digits and underscores, up to 40 of them.
	ID string

	// Map and Key name the key at the fences of the shards.
	Map, Key string

	// Source and Target are connection strings of the masters of both shards.
	Source, Target string

	// SourceShard and TargetShard are the names that the map has for them.
	SourceShard, TargetShard string

	// Epoch is that of the key before the transfer.
	Epoch int64

	// Tables are those that move together.
	Tables []Table

	// Limits bound the steps; a zero is the default of [Limits].
	Limits Limits

	// Report, when set, is told about the progress a few times a second at most.
	Report func(Progress)

	// Hook, when set, is called at each of [Points]. An error of it ends the step there
	// and undoes nothing, as the death of the process would.
	Hook func(point string) error
}

// A Table is one whose rows belong to a key. A row moves when its first columns hold the parts
// of the key, the further condition holds, and they do not hold those of a key that stays.
type Table struct {
	Name    string     // with its schema, such as public.mail; public when it has none
	Columns []string   // that hold the parts of keys, in their order
	Key     []string   // parts of the key, for as many of the columns; none when Where tells alone
	Where   string     // a further condition in SQL without parameters; none when it is empty
	Except  [][]string // the parts of keys within this one that stay, each for as many of the columns
}

// Limits bound the steps of a transfer.
type Limits struct {
	Freeze    time.Duration // how long the source may be frozen before it thaws by itself; 500 ms
	Lock      time.Duration // how long the freeze waits for writers; 100 ms
	Attempts  int           // of a cutover, before it gives up; 5
	Ping      time.Duration // the longest way through the stream that lets a freeze begin; 20 ms
	Gate      time.Duration // how long to wait for such a ping; 10 min
	Slot      time.Duration // how long the creation of a slot waits for older transactions; 10 s
	DDL       time.Duration // how long a publication waits for its locks; 5 s
	Touched   int           // the most rows that are compared within the window; 5,000
	Batch     int           // rows deleted at once; 1,000
	DeadRows  int64         // cleanup pauses while the tables have more dead rows than this and a tenth of the living; 100,000
	BytesRate int64         // bytes a second of the copy; no bound when 0
}

func (l Limits) filled() Limits {
	return Limits{
		Freeze: cmp.Or(l.Freeze, 500*time.Millisecond), Lock: cmp.Or(l.Lock, 100*time.Millisecond),
		Attempts: cmp.Or(l.Attempts, 5), Ping: cmp.Or(l.Ping, 20*time.Millisecond), Gate: cmp.Or(l.Gate, 10*time.Minute),
		Slot: cmp.Or(l.Slot, 10*time.Second), DDL: cmp.Or(l.DDL, 5*time.Second), Touched: cmp.Or(l.Touched, 5000),
		Batch: cmp.Or(l.Batch, 1000), DeadRows: cmp.Or(l.DeadRows, 100_000), BytesRate: l.BytesRate,
	}
}

// Progress is how far a step is.
type Progress struct {
	Step    string  `json:"step"`
	Rows    int64   `json:"rows"`    // copied, applied, compared or deleted by this step
	Total   int64   `json:"total"`   // as far as it can be told before; 0 when it cannot
	Bytes   int64   `json:"bytes"`   // copied
	Lag     int64   `json:"lag"`     // bytes of the source's log that are not applied yet
	Percent float64 `json:"percent"` // of this step
}

// Points are the places at which a [Spec.Hook] is called, in the order of a transfer. It comes to
// thaw only when a cutover has failed: the source is about to get the key back.
var Points = []string{
	"clear", "publication", "slot", "copy", "copied", "analyze", "stream", "verify", "reverse",
	"gate", "freeze", "frozen", "drained", "opened", "sealed", "thaw", "switched", "retired", "cleanup", "cleaned",
}

// A RefusedError says why a transfer cannot begin.
type RefusedError struct {
	Reasons []string
}

// Error implements error.
func (e *RefusedError) Error() string { return "refused: " + strings.Join(e.Reasons, "; ") }

// A RestartError says that what was copied is of no use any more: the transfer begins
// again with the copy.
type RestartError struct {
	Reason string
}

// Error implements error.
func (e *RestartError) Error() string { return e.Reason + "; the copy begins again" }

// A DivergedError says that the two sides differ where they must not.
type DivergedError struct {
	Table  string
	Detail string
}

// Error implements error.
func (e *DivergedError) Error() string {
	return fmt.Sprintf("table %s differs between source and target: %s; the copy begins again", e.Table, e.Detail)
}

// MustRestart reports whether an error asks for a new copy.
func MustRestart(err error) bool {
	var r *RestartError
	var d *DivergedError
	return errors.As(err, &r) || errors.As(err, &d)
}

// crashError is what a hook has returned: nothing is undone behind it.
type crashError struct{ error }

func (e *crashError) Unwrap() error { return e.error }

func isCrash(err error) bool {
	var c *crashError
	return errors.As(err, &c)
}

var idPattern = regexp.MustCompile(`^[a-z0-9_]{1,40}$`)

func (s *Spec) check() error {
	var reasons []string
	if !idPattern.MatchString(s.ID) {
		reasons = append(reasons, fmt.Sprintf("the transfer's id is %q: want up to 40 lower-case letters, digits and underscores", s.ID))
	}
	if len(s.Tables) == 0 {
		reasons = append(reasons, "the map lists no tables to move")
	}
	for _, t := range s.Tables {
		if len(t.Columns) == 0 || len(t.Key) > len(t.Columns) || len(t.Key) == 0 && t.Where == "" {
			reasons = append(reasons, fmt.Sprintf("table %s: want the columns of the key, and a condition or a part for as many of them", t.Name))
		}
	}
	if s.Source == s.Target {
		reasons = append(reasons, "source and target are the same shard")
	}
	if len(reasons) > 0 {
		return &RefusedError{reasons}
	}
	return nil
}

// slot is the name of the slot and of the publication on the source.
func (s *Spec) slot() string { return "procaas_" + s.ID }

// backSlot is the name of those on the target, for the way back.
func (s *Spec) backSlot() string { return "procaas_" + s.ID + "_back" }

func (t Table) split() (schema, name string) {
	schema, name, ok := strings.Cut(t.Name, ".")
	if !ok {
		return "public", t.Name
	}
	return schema, name
}

func quote(names ...string) string { return pgx.Identifier(names).Sanitize() }

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
