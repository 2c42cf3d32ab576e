// Package archive keeps ended runs in files of a folder, or in objects of a bucket, before they leave the store.
//
// Each part becomes one file: its day is a folder of the name, so that readers skip days, and the rest of its name says which runs it
// has. A part that is written again, after a crash, replaces itself.
package archive

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"

	"procaas/engine/records"
)

// A Format is the form of the files.
type Format struct {
	Name        string // as in flags
	suffix      string // of files
	contentType string
	write       func(io.Writer, iter.Seq[records.Archived]) error
}

// Formats lists the formats. The first is the default.
func Formats() []Format {
	return []Format{
		{Name: "jsonl", suffix: ".jsonl.gz", contentType: "application/gzip", write: writeLines},
		{Name: "parquet", suffix: ".parquet", contentType: "application/vnd.apache.parquet", write: writeRows},
	}
}

// An Archive is a place with files of one format.
type Archive struct {
	at      place
	address string
	format  Format
}

var _ records.Archive = (*Archive)(nil)

// A place has the files.
type place interface {
	// check returns what keeps files from being written, as far as that shows without writing one that stays.
	check(ctx context.Context) error

	// put writes a file, also in place of one with the same name. When it returns, the file is durable.
	put(ctx context.Context, name string, data []byte, contentType string) error
}

// Check returns what keeps the archive from taking runs. The error is [ErrAway] if it may pass by itself.
func (a *Archive) Check(ctx context.Context) error { return a.at.check(ctx) }

// Address implements [records.Archive].
func (a *Archive) Address() string { return a.address }

// Keep implements [records.Archive].
func (a *Archive) Keep(ctx context.Context, p records.ArchivePart) error {
	var b bytes.Buffer
	if err := a.format.write(&b, p.Runs); err != nil {
		return fmt.Errorf("write ended runs as %s: %w", a.format.Name, err)
	}
	return a.at.put(ctx, "date="+p.Day.Format("2006-01-02")+"/"+p.Name+a.format.suffix, b.Bytes(), a.format.contentType)
}
