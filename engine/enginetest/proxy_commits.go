package enginetest

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// A commitFinder reads what a client sends to PostgreSQL, as far as needed to see
// that a transaction is committed: by a query, or by a statement that was prepared
// for it.
type commitFinder struct {
	rest       []byte // of a message that has not come whole
	started    bool   // the message without a type, which begins each connection, is over
	statements map[string]bool
	bound      bool // a commit is on its way, up to the next sync
}

// The kinds of messages that matter, by the frontend's protocol.
const (
	queryMessage = 'Q'
	parseMessage = 'P'
	bindMessage  = 'B'
	syncMessage  = 'S'
)

// find tells whether bytes complete what makes the server commit.
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
		return isCommit(first)
	case parseMessage:
		f.statements[string(first)] = isCommit(second)
	case bindMessage: // a portal, and the statement that runs in it
		f.bound = f.bound || f.statements[string(second)]
	case syncMessage:
		bound := f.bound
		f.bound = false
		return bound
	}
	return false
}

func isCommit(sql []byte) bool {
	return strings.EqualFold(strings.Trim(string(sql), " ;\n"), "commit")
}
