package replay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"procaas/engine/definitions"
	"procaas/engine/records"
)

// A Line is one line of a file of recorded runs: a version of the pipelines, or a run. A version
// comes before its first run.
type Line struct {
	Version *definitions.VersionDetail `json:"version,omitempty"`
	Run     *records.Recorded          `json:"run,omitempty"`
}

// A Writer writes a file of recorded runs.
type Writer struct {
	w     io.Writer
	known map[string]bool
	Runs  int // written runs
}

// NewWriter makes a Writer.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w, known: map[string]bool{}} }

// Write writes a run, preceded by its version if that is new. version reads a version.
func (w *Writer) Write(run *records.Recorded, version func(hash string) (definitions.VersionDetail, error)) error {
	if !w.known[run.Bundle] {
		v, err := version(run.Bundle)
		if err != nil {
			return err
		}
		if err := w.line(Line{Version: &definitions.VersionDetail{Version: v.Version, Diff: v.Diff, Files: v.Files}}); err != nil {
			return err
		}
		w.known[run.Bundle] = true
	}
	w.Runs++
	return w.line(Line{Run: run})
}

func (w *Writer) line(l Line) error {
	e := json.NewEncoder(w.w)
	e.SetEscapeHTML(false)
	return e.Encode(l)
}

// maxLine bounds one line of a file, in bytes. A line has all files of a version.
const maxLine = 64 << 20

// A Reader reads a file of recorded runs: one of a Writer, or one of an archive in JSON Lines, which has no versions. It passes over the
// runs of an archive that were not recorded.
type Reader struct {
	s    *bufio.Scanner
	line int

	// Version is called with a version before its first run.
	Version func(definitions.VersionDetail) error
}

// wanted says what lines are.
const wanted = "want a run or a version as procaas runs export writes them, or a run of an archive"

// NewReader makes a Reader.
func NewReader(r io.Reader, version func(definitions.VersionDetail) error) *Reader {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 64<<10), maxLine)
	return &Reader{s: s, Version: version}
}

// Next returns the next run, or nil at the end.
func (r *Reader) Next() (*records.Recorded, error) {
	for r.s.Scan() {
		r.line++
		if len(bytes.TrimSpace(r.s.Bytes())) == 0 {
			continue
		}
		var l struct {
			Line
			records.Archived
		}
		d := json.NewDecoder(bytes.NewReader(r.s.Bytes()))
		d.UseNumber()
		if err := d.Decode(&l); err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", r.line, wanted, err)
		}
		switch {
		case l.Run != nil:
			return l.Run, nil
		case l.Version != nil:
		case l.Recording != nil:
			return &records.Recorded{RunView: l.RunView, State: l.State, Recording: *l.Recording}, nil
		case l.ID != "" && l.Pipeline != "":
			continue // it was not recorded
		default:
			return nil, fmt.Errorf("line %d: %s", r.line, wanted)
		}
		if err := r.Version(*l.Version); err != nil {
			return nil, fmt.Errorf("line %d: %w", r.line, err)
		}
	}
	err := r.s.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("line %d: want at most %d MiB on a line", r.line+1, maxLine>>20)
	}
	return nil, err
}
