package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"procaas/engine/model"
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

// An AuditedTrim is what the record of a trim says. It is part of the chain, so nobody can move the
// oldest record that is kept without a record that says so.
type AuditedTrim struct {
	UpTo      int64     `json:"up_to"`               // the revision of the last removed record
	Hash      string    `json:"hash"`                // of that record; empty if it is older than the chain
	Removed   int64     `json:"removed"`             // how many records this trim removed
	Newest    time.Time `json:"newest,omitzero"`     // when the youngest of them was written
	Retention string    `json:"retention,omitempty"` // how old a record had to be, such as 9600h0m0s

	// Adopted says that an earlier release removed the records without a record of it. The upgrade
	// wrote this one.
	Adopted bool `json:"adopted,omitempty"`
}

// Trimmed makes the record of a trim. The store sets the revision.
func (t AuditedTrim) Trimmed() Audited {
	reason := "older than the retention of the audit"
	if t.Adopted {
		reason = "removed by an earlier release"
	}
	return Audited{Kind: AuditTrim, By: Actor{Name: "procaas", Reason: reason}, After: model.EncodeJSON(t)}
}

// An AuditLink is what the next record of a chain builds on.
type AuditLink struct {
	Revision int64
	Hash     []byte // empty before the first record of a chain
}

// An AuditChain is the result of checking the audit records of one database.
type AuditChain struct {
	Cell    string `json:"cell,omitempty" doc:"The database of the inbox; absent if there is only one."`
	Records int    `json:"records" doc:"The number of records that fit, up to the first that does not."`
	Older   int    `json:"older" doc:"The number of records without a hash, from before the chain began. They cannot be verified."`
	Trimmed int64  `json:"trimmed" doc:"The revision of the last record that was deleted by age; 0 for none."`

	Retention string `json:"retention,omitempty" doc:"How old records had to be to be deleted, such as 9600h0m0s: the shortest such time that a record of the kind trim names. Absent without one."`

	Last  int64       `json:"last" doc:"The revision of the last record that fits."`
	Head  string      `json:"head" doc:"The hash of the last record: keep it elsewhere. Empty before the first record."`
	Holds []string    `json:"holds" doc:"Which of the expected hashes are there."`
	Break *AuditBreak `json:"break,omitempty" doc:"The first record that does not fit; absent if all fit."`
}

// An AuditBreak is the first broken place of a chain.
type AuditBreak struct {
	Revision int64     `json:"revision" doc:"The revision of the record."`
	Changed  time.Time `json:"changed,omitzero" doc:"The time in the record; absent if there is no record."`
	Found    string    `json:"found" doc:"The value that was found."`
	Want     string    `json:"want" doc:"The expected value."`
}

// An AuditCheck follows a chain from its oldest record to its newest. Copies of it are independent.
type AuditCheck struct {
	chain AuditChain
	at    AuditLink
	last  int64 // as counted by the store
	kept  []string

	base     AuditLink      // as the store has it, which is no part of the chain
	trim     *AuditedTrim   // the last one of the chain; nil before it
	trimmed  AuditBreak     // where that is
	shortest *time.Duration // of the trims of the chain
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
	c.last, c.base = last, base
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
		if a.Kind == AuditTrim {
			c.addTrim(a)
		}
	}
	c.reach(AuditLink{a.Revision, a.Hash})
}

// addTrim checks what the record of a trim says: it removed only what was older than the retention,
// and more than the trim before it.
func (c *AuditCheck) addTrim(a Audited) {
	at := AuditBreak{Revision: a.Revision, Changed: a.Changed.UTC()}
	broken := func(found, want string) {
		at.Found, at.Want = found, want
		c.broken(at)
	}
	var t AuditedTrim
	var keep time.Duration
	err := json.Unmarshal(a.After, &t)
	if err == nil && !t.Adopted {
		keep, err = time.ParseDuration(t.Retention)
	}
	switch {
	case err != nil:
		broken("a trim that cannot be read: "+err.Error(), "the revision, the hash and the retention of a trim")
	case t.UpTo >= a.Revision:
		broken(fmt.Sprintf("a trim of records up to %d", t.UpTo), "a trim of earlier records")
	case c.trim != nil && (t.UpTo < c.trim.UpTo || t.Adopted):
		broken(fmt.Sprintf("a trim of records up to %d behind one up to %d", t.UpTo, c.trim.UpTo), "one that removes more, for their age")
	case !t.Adopted && t.Newest.Add(keep).After(a.Changed):
		broken(fmt.Sprintf("a trim of a record of %s", t.Newest.UTC().Format(time.RFC3339)), fmt.Sprintf("only records that were %s old",
			t.Retention))
	}
	if !t.Adopted && err == nil && (c.shortest == nil || keep < *c.shortest) {
		c.shortest, c.chain.Retention = &keep, t.Retention
	}
	c.trim, c.trimmed = &t, at
}

// checkBase checks that the store begins where the last trim of the chain ended. The store's own
// note of that place is no part of the chain, so anybody who writes to the database can move it.
func (c *AuditCheck) checkBase() {
	hash := hex.EncodeToString(c.base.Hash)
	early, differs := false, false // against the last trim
	if c.trim != nil {
		early = c.trim.UpTo > c.base.Revision
		differs = hash != "" && (c.trim.UpTo != c.base.Revision || c.trim.Hash != hash)
	}
	switch {
	case early, differs:
		at := c.trimmed
		at.Found = fmt.Sprintf("a chain that begins behind record %d", c.base.Revision)
		at.Want = fmt.Sprintf("one that begins behind %d, where the last trim of the chain ended", c.trim.UpTo)
		c.broken(at)
	case c.trim == nil && hash != "":
		c.broken(AuditBreak{
			Revision: c.base.Revision, Found: "no such record, nor one that says that it was removed for its age",
			Want: "a record of the kind trim in the chain, which each removal writes",
		})
	}
}

// End ends the check after the last record and returns the result.
func (c *AuditCheck) End() AuditChain {
	if next := c.at.Revision + 1; next <= c.last {
		c.broken(AuditBreak{Revision: next, Found: "no such record, nor a later one", Want: fmt.Sprintf("records up to %d", c.last)})
	}
	c.checkBase()
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
