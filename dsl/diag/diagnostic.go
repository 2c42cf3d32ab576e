package diag

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// A Pos is a position in a file. Lines and columns count from 1, and columns count runes. The zero Pos is
// unknown.
type Pos struct {
	Line   int
	Column int
}

// A Span is a range of one file, from Start up to but not including End.
type Span struct {
	File  string
	Start Pos
	End   Pos

	Via *Related // for parts of templates and their arguments, the other position
}

// Equal reports whether two spans are the same range.
func (s Span) Equal(other Span) bool {
	return s.File == other.File && s.Start == other.Start && s.End == other.End
}

// String returns file:line:column.
func (s Span) String() string {
	return fmt.Sprintf("%s:%d:%d", s.File, s.Start.Line, s.Start.Column)
}

// A Severity is how serious a diagnostic is.
type Severity string

// The severities, worst first. Only an Error keeps a bundle from loading.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Advice  Severity = "advice"
)

// AtLeast reports whether s is as bad as least, or worse.
func (s Severity) AtLeast(least Severity) bool { return s.rank() >= least.rank() }

// Known reports whether s is one of the severities.
func (s Severity) Known() bool { return s.rank() > 0 }

func (s Severity) rank() int {
	switch s {
	case Error:
		return 3
	case Warning:
		return 2
	case Advice:
		return 1
	}
	return 0
}

// A Code identifies a rule, such as PC0103. Codes are stable and never reused. Package rules explains each.
type Code string

// A Diagnostic is one finding for the author of a file: what was found, where, what was expected and how to fix
// it.
type Diagnostic struct {
	Span
	Severity Severity
	Code     Code
	Message  string
	Hint     string    // how to fix it; may be empty
	Related  []Related // related positions

	// Runs says that a definition with this error can run as before it was found. So a program that finds more than
	// an earlier one can still use what that one has stored.
	Runs bool
}

// A Related is a position that explains a diagnostic, such as the first of two duplicates.
type Related struct {
	Span
	Message string
}

// A Reporter collects diagnostics. Its zero value is ready for use.
type Reporter struct {
	Found []Diagnostic
	hints int // number of suggestions made
}

// Report adds d. An empty severity counts as [Error].
func (r *Reporter) Report(d Diagnostic) {
	if d.Severity == "" {
		d.Severity = Error
	}
	if d.Via != nil {
		d.Related = append(slices.Clip(d.Related), *d.Via)
		d.Via = nil
	}
	r.Found = append(r.Found, d)
}

// Errorf adds an error. The hint may be empty.
func (r *Reporter) Errorf(at Span, code Code, hint, format string, args ...any) {
	r.Report(Diagnostic{Span: at, Code: code, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

// Warnf adds a warning. The hint may be empty.
func (r *Reporter) Warnf(at Span, code Code, hint, format string, args ...any) {
	r.Report(Diagnostic{Span: at, Severity: Warning, Code: code, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

// Diagnostics returns all findings without duplicates, sorted by file, line and column.
func (r *Reporter) Diagnostics() []Diagnostic {
	out := slices.Clone(r.Found)
	slices.SortStableFunc(out, func(a, b Diagnostic) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Start.Line, b.Start.Line),
			cmp.Compare(a.Start.Column, b.Start.Column),
			cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Message, b.Message),
		)
	})
	return slices.CompactFunc(out, func(a, b Diagnostic) bool {
		return a.Span == b.Span && a.Code == b.Code && a.Message == b.Message
	})
}

// HasErrors reports whether any finding is an [Error].
func HasErrors(ds []Diagnostic) bool {
	return slices.ContainsFunc(ds, func(d Diagnostic) bool { return d.Severity == Error })
}

// Advisef adds advice. The hint says what to do instead.
func (r *Reporter) Advisef(at Span, code Code, hint, format string, args ...any) {
	r.Report(Diagnostic{Span: at, Severity: Advice, Code: code, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

// Before reports whether p precedes q in a file.
func (p Pos) Before(q Pos) bool {
	return p.Line < q.Line || p.Line == q.Line && p.Column < q.Column
}

// InParallel calls work for 0 to n-1 on all processors. Each call gets its own reporter. r gets the findings in
// the order of the indexes, so the result is deterministic.
func InParallel(n int, r *Reporter, work func(i int, r *Reporter)) {
	found := make([]Reporter, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				work(i, &found[i])
			}
		})
	}
	wg.Wait()
	for i := range found {
		r.Found = append(r.Found, found[i].Found...)
	}
}

// Covers reports whether p is in s.
func (s Span) Covers(p Pos) bool {
	return !p.Before(s.Start) && p.Before(s.End)
}

// A File is one source file of a bundle.
type File struct {
	Name string // for diagnostics, with forward slashes
	Data []byte

	// ID identifies the file within its set on any machine: its path below the given directory. If it is empty,
	// Name is used. The hash of the bundle depends on it.
	ID string
}

// Head returns the first line of a span. A message that marks a whole block would hide the relevant line.
func (s Span) Head() Span {
	if s.Start.Line != s.End.Line {
		s.End = Pos{Line: s.Start.Line, Column: s.Start.Column + 1}
	}
	return s
}
