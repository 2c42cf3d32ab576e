package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

// This file chains the audit records. Each record has a hash of its content and of the hash of the
// record before it. So a record that was changed, removed or inserted later does not fit. Somebody
// who can write to the database can forge a whole new chain. Only a hash that was kept elsewhere
// reveals that.

// ChainHash returns the hash of the record, given the hash of the record before it. before is empty
// for the first record of a chain. Times count in microseconds, as in the stores.
func (a *Audited) ChainHash(before []byte) []byte {
	h := sha256.New()
	number := func(n int64) { h.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) }
	number(int64(len(before)))
	h.Write(before)
	number(a.Revision)
	number(a.Changed.UnixMicro())
	for _, part := range [][]byte{[]byte(a.By.Name), []byte(a.By.Reason), []byte(a.Kind), []byte(a.Name), a.Before, a.After} {
		number(int64(len(part))) // so that nothing can move from one part into the next
		h.Write(part)
	}
	return h.Sum(nil)
}

// An AuditLink is what the next record of a chain builds on.
type AuditLink struct {
	Revision int64
	Hash     []byte // empty before the first record of a chain
}

// An AuditChain is the result of checking the audit records of one database.
type AuditChain struct {
	Cell    string      `json:"cell,omitempty"` // name of the inbox's database; empty for the home
	Records int         `json:"records"`
	Older   int         `json:"older"`
	Trimmed int64       `json:"trimmed"`
	Last    int64       `json:"last"`
	Head    string      `json:"head"`
	Holds   []string    `json:"holds"`
	Break   *AuditBreak `json:"break,omitempty"`
}

// An AuditBreak is the first broken place of a chain.
type AuditBreak struct {
	Revision int64     `json:"revision"`
	Changed  time.Time `json:"changed,omitzero"`
	Found    string    `json:"found"`
	Want     string    `json:"want"`
}

// An AuditCheck follows a chain from its oldest record to its newest. Copies of it are independent.
type AuditCheck struct {
	chain AuditChain
	at    AuditLink
	last  int64 // as counted by the store
	kept  []string
}

// NewAuditCheck begins a check, which also looks for the hashes in kept.
func NewAuditCheck(kept []string) AuditCheck {
	return AuditCheck{kept: kept, chain: AuditChain{Holds: []string{}}}
}

// From sets what the oldest records build on: the last removed record, or the last record that is
// older than the chain, which has no hash. It may be called again while the chain is read, after
// more records were removed. older counts the records up to base that still exist. last is the last
// revision that the store counted.
func (c *AuditCheck) From(base AuditLink, older int, last int64) {
	c.last = last
	if base.Revision < c.at.Revision {
		return
	}
	if len(base.Hash) == 0 {
		c.chain.Older = older
	} else {
		c.chain.Trimmed = base.Revision
		if older > 0 {
			c.broken(AuditBreak{Revision: base.Revision, Found: fmt.Sprintf("%d records up to this one", older), Want: "none, since they were " +
				"removed for their age"})
		}
	}
	c.reach(base)
}

// At returns the last revision that was read.
func (c *AuditCheck) At() int64 { return c.at.Revision }

// Add checks the next record.
func (c *AuditCheck) Add(a Audited) {
	next := c.at.Revision + 1
	want := a.ChainHash(c.at.Hash)
	switch {
	case c.chain.Break != nil:
	case a.Revision > c.last && next > c.last:
		c.broken(AuditBreak{
			Revision: a.Revision, Changed: a.Changed.UTC(), Found: "a record that the store did not write",
			Want: fmt.Sprintf("%d as the last one", c.last),
		})
	case a.Revision != next:
		c.broken(AuditBreak{
			Revision: next, Found: fmt.Sprintf("no such record: the next one is %d of %s", a.Revision, a.Changed.UTC().Format(time.RFC3339)),
			Want: fmt.Sprintf("the record behind %d", c.at.Revision),
		})
	case !bytes.Equal(a.Hash, want):
		found := "no hash"
		if len(a.Hash) > 0 {
			found = "hash " + hex.EncodeToString(a.Hash)
		}
		c.broken(AuditBreak{
			Revision: a.Revision, Changed: a.Changed.UTC(), Found: found,
			Want: fmt.Sprintf("%x, by what the record says and the hash of the one before", want),
		})
	default:
		c.chain.Records++
	}
	c.reach(AuditLink{a.Revision, a.Hash})
}

// End ends the check after the last record and returns the result.
func (c *AuditCheck) End() AuditChain {
	if next := c.at.Revision + 1; next <= c.last {
		c.broken(AuditBreak{Revision: next, Found: "no such record, nor a later one", Want: fmt.Sprintf("records up to %d", c.last)})
	}
	return c.chain
}

func (c *AuditCheck) reach(l AuditLink) {
	c.at = l
	hash := hex.EncodeToString(l.Hash)
	if c.chain.Break != nil || hash == "" {
		return
	}
	c.chain.Last, c.chain.Head = l.Revision, hash
	if slices.Contains(c.kept, hash) {
		c.chain.Holds = append(slices.Clip(c.chain.Holds), hash)
	}
}

func (c *AuditCheck) broken(b AuditBreak) {
	if c.chain.Break == nil {
		c.chain.Break = &b
	}
}
