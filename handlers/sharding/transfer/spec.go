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

// A Spec says what to move, and with which limits.
type Spec struct {
	// ID identifies the transfer, its slots and its publications: up to 40 lower-case letters,
	// digits and underscores.
	ID string

	// Map and Key identify the key in the shards' fences.
	Map, Key string

	// Source and Target are connection strings of the masters of both shards.
	Source, Target string

	// SourceShard and TargetShard are their names in the map.
	SourceShard, TargetShard string

	// Epoch is the key's epoch before the transfer.
	Epoch int64

	// Tables move together.
	Tables []Table

	// Listed names all tables of the map. Some may have no rows of the key that move.
	Listed []string

	// OneWay keeps nothing for a rollback.
	OneWay bool

	// Stays names tables whose rows stay on purpose. Elsewhere names those that another map moves:
	// their rows stay unless they refer to rows that move.
	Stays, Elsewhere []string

	// Limits bound the steps. A zero means the default in [Limits].
	Limits Limits

	// Report receives the progress, at most a few times a second. It may be nil.
	Report func(Progress)

	// Hook is called at each of [Points]. Its error ends the step there and undoes nothing, like
	// the death of the process. It may be nil.
	Hook func(point string) error
}

// A Table has rows of a key. A row moves if its first columns have the parts of the key, Where
// holds, and it does not belong to one of Except.
type Table struct {
	Name    string     // with its schema, such as public.mail; public by default
	Columns []string   // of the parts of keys, in order
	Key     []string   // parts of the key, for as many of the columns; empty if only Where decides
	Where   string     // a further SQL condition without parameters; empty for none
	Except  [][]string // parts of keys within this one that stay, each for as many of the columns
}

// Limits bound the steps of a transfer. The defaults follow each semicolon.
type Limits struct {
	Freeze   time.Duration // how long the source may be frozen before it thaws by itself; 500 ms
	Lock     time.Duration // how long the freeze waits for writers; 100 ms
	Attempts int           // of a cutover; 5
	Ping     time.Duration // the highest latency of the stream at which a freeze begins; 20 ms
	Gate     time.Duration // how long to wait for such a latency; 10 min
	Slot     time.Duration // how long the creation of a slot waits for older transactions; 10 s
	DDL      time.Duration // how long a publication waits for its locks; 5 s
	Touched  int           // the most rows to compare during the freeze; 5,000
	Batch    int           // rows deleted at once; 1,000
	// DeadRows makes cleanup pause while a table has more dead rows than this and a tenth of the
	// living. The default is 100,000.
	DeadRows  int64
	BytesRate int64 // bytes per second of the copy; 0 is no limit
}

func (l Limits) filled() Limits {
	return Limits{
		Freeze: cmp.Or(l.Freeze, 500*time.Millisecond), Lock: cmp.Or(l.Lock, 100*time.Millisecond),
		Attempts: cmp.Or(l.Attempts, 5), Ping: cmp.Or(l.Ping, 20*time.Millisecond), Gate: cmp.Or(l.Gate, 10*time.Minute),
		Slot: cmp.Or(l.Slot, 10*time.Second), DDL: cmp.Or(l.DDL, 5*time.Second), Touched: cmp.Or(l.Touched, 5000),
		Batch: cmp.Or(l.Batch, 1000), DeadRows: cmp.Or(l.DeadRows, 100_000), BytesRate: l.BytesRate,
	}
}

// Progress is the progress of a step.
type Progress struct {
	Step    string  `json:"step"`
	Rows    int64   `json:"rows"`    // copied, applied, compared or deleted in this step
	Total   int64   `json:"total"`   // estimated total; 0 if unknown
	Bytes   int64   `json:"bytes"`   // copied
	Lag     int64   `json:"lag"`     // bytes of the source's log that are not applied yet
	Percent float64 `json:"percent"` // of this step
}

// Points are the places where a [Spec.Hook] is called, in the order of a transfer. thaw is reached
// only if a cutover has failed, just before the source gets the key back.
var Points = []string{
	"clear", "publication", "slot", "copy", "copied", "analyze", "stream", "verify", "reverse",
	"gate", "freeze", "frozen", "drained", "opened", "sealed", "thaw", "switched", "retired", "cleanup", "cleaned",
}

// A RefusedError says why a transfer is impossible.
type RefusedError struct {
	Reasons []string
}

// Error implements error.
func (e *RefusedError) Error() string { return "refused: " + strings.Join(e.Reasons, "; ") }

// A RestartError says that the copy is useless: the transfer must copy again.
type RestartError struct {
	Reason string
}

// Error implements error.
func (e *RestartError) Error() string { return e.Reason + "; the copy begins again" }

// A DivergedError says that the two sides differ although they must not.
type DivergedError struct {
	Table  string
	Detail string
}

// Error implements error.
func (e *DivergedError) Error() string {
	return fmt.Sprintf("table %s differs between source and target: %s; the copy begins again", e.Table, e.Detail)
}

// MustRestart reports whether an error requires a new copy.
func MustRestart(err error) bool {
	var r *RestartError
	var d *DivergedError
	return errors.As(err, &r) || errors.As(err, &d)
}

// Hopeless reports whether a stream can never continue after an error.
func Hopeless(err error) bool {
	var refused *RefusedError
	return MustRestart(err) || errors.As(err, &refused)
}

// crashError is the error of a hook: nothing is undone after it.
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

// slot returns the name of the slot and the publication on the source.
func (s *Spec) slot() string { return "procaas_" + s.ID }

// backSlot returns the name of those on the target, for the way back.
func (s *Spec) backSlot() string { return "procaas_" + s.ID + "_back" }

func (t Table) split() (schema, name string) {
	schema, name, ok := strings.Cut(t.Name, ".")
	if !ok {
		return "public", t.Name
	}
	return schema, name
}

// quoted quotes the name of the table with its schema.
func (t Table) quoted() string {
	schema, name := t.split()
	return quote(schema, name)
}

func quote(names ...string) string { return pgx.Identifier(names).Sanitize() }

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
