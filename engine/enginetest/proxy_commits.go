package enginetest

import (
	"bytes"
	"encoding/binary"
	"regexp"
	"strings"
)

// A commitFinder reads what a client sends to PostgreSQL, as far as needed to recognize a commit:
// by a query, by a prepared statement, or, without a begin, by the end of a batch.
type commitFinder struct {
	rest       []byte // of an incomplete message
	started    bool   // the untyped first message of the connection is over
	statements map[string]statement
	begun      bool // a statement has begun a transaction
	bound      bool // a commit was sent, up to the next sync
	wrote      bool // a statement that changes rows was sent
}

// A statement is the kind of a statement.
type statement int

const (
	anyStatement statement = iota
	writeStatement
	beginStatement
	commitStatement
	rollbackStatement
)

// These are the relevant kinds of frontend messages.
const (
	queryMessage = 'Q'
	parseMessage = 'P'
	bindMessage  = 'B'
	syncMessage  = 'S'
)

// find reports whether bytes complete a commit.
func (f *commitFinder) find(b []byte) (found bool) {
	f.rest = append(f.rest, b...)
	for {
		head := 5 // a type and a length
		if !f.started {
			head = 4
		}
		if len(f.rest) < head {
			return found
		}
		end := head - 4 + int(binary.BigEndian.Uint32(f.rest[head-4:]))
		if end < head || len(f.rest) < end {
			return found
		}
		if f.started && f.isCommit(f.rest[0], f.rest[head:end]) {
			found = true
		}
		f.started = true
		f.rest = f.rest[end:]
	}
}

func (f *commitFinder) isCommit(kind byte, body []byte) bool {
	first, rest, _ := bytes.Cut(body, []byte{0})
	second, _, _ := bytes.Cut(rest, []byte{0})
	switch kind {
	case queryMessage:
		k := kindOfStatement(first)
		f.run(k)
		f.bound, f.wrote = false, false
		return k == commitStatement || k == writeStatement && !f.begun
	case parseMessage:
		f.statements[string(first)] = kindOfStatement(second)
	case bindMessage: // a portal, and its statement
		f.run(f.statements[string(second)])
	case syncMessage:
		found := f.bound || f.wrote && !f.begun
		f.bound, f.wrote = false, false
		return found
	}
	return false
}

// run notes the effect of a statement on the transaction.
func (f *commitFinder) run(k statement) {
	switch k {
	case writeStatement:
		f.wrote = true
	case beginStatement:
		f.begun = true
	case commitStatement:
		f.bound, f.begun = true, false
	case rollbackStatement:
		f.begun, f.wrote = false, false
	}
}

// changesRows matches statements that write, with or without WITH.
var changesRows = regexp.MustCompile(`(?i)\b(insert\s+into|delete\s+from|update\s+\w+(\s+\w+)?\s+set)\b`)

func kindOfStatement(sql []byte) statement {
	switch strings.ToLower(strings.Trim(string(sql), " ;\n")) {
	case "begin":
		return beginStatement
	case "commit":
		return commitStatement
	case "rollback":
		return rollbackStatement
	}
	if changesRows.Match(sql) {
		return writeStatement
	}
	return anyStatement
}
