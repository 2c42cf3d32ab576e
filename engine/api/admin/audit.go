package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/scope"
	"procaas/engine/api/wire"
	"procaas/engine/credentials"
	"procaas/engine/records"
	"procaas/engine/store"
)

// This file serves the audit.

func (g *Group) auditOperations() []rest.Operation {
	return []rest.Operation{
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/audit", ID: "list-audit", Need: rest.Views, Tag: "admin",
			Summary: "List who changed what, newest first",
			Replies: rest.OK("A page of changes."), Refusals: []string{problem.InvalidParameter, problem.StoreUnavailable},
		}, g.audit),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/audit/verify", ID: "verify-audit", Need: rest.Views, Tag: "admin",
			Summary: "Verify that nobody changed the audit",
			About: "Reads all records, oldest first. Each record has a hash of its contents and of the hash before it. A record that " +
				"somebody changed, removed or inserted later does not fit. Somebody who can write to the database can recompute the whole " +
				"chain. So keep `head` elsewhere, and check with `expect` that it still exists. A node handles one such call at a time.",
			Replies: rest.OK("What was found."), Refusals: []string{problem.InvalidParameter, problem.CellAway, problem.StoreUnavailable},
		}, g.verify),
	}
}

type auditQuery struct {
	Kind  string    `query:"kind" enum:"canary,cluster,config,control,dead-letter,definition,erase,event,fallback,inbox,keys,queue,refusal,run,session,shard,store,token,transfer,trigger,trim" doc:"Only changes of this kind."`
	Name  string    `query:"name" doc:"Only changes of this setting, token, run or service, or of this path and below."`
	By    string    `query:"by" doc:"Only changes by this actor: the name of a token."`
	Since time.Time `query:"since" doc:"Only changes made at this time or later."`
	Until time.Time `query:"until" doc:"Only changes made before this time."`
	Limit int       `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"The most changes of one page."`
	rest.PageQuery
}

// audit reads one change more than a page has, to find out whether another page follows.
func (g *Group) audit(c *rest.Call, in *auditQuery) (page wire.Page[records.AuditView], err error) {
	filter := store.AuditFilter{Kind: in.Kind, Name: in.Name, By: in.By, Since: in.Since, Until: in.Until}
	position, err := in.Position(rest.CursorAudit)
	if err != nil {
		return page, err
	}
	if position != "" {
		if filter.Before, err = strconv.ParseInt(position, 36, 64); err != nil || filter.Before < 1 {
			return page, rest.NoCursor(rest.CursorAudit)
		}
	}
	changes, last, err := g.changes(c.Context(), rest.Granted(c.R), filter, in.Limit)
	if err != nil {
		return page, err
	}
	next := ""
	if last != 0 {
		next = rest.SealCursor(rest.CursorAudit, strconv.FormatInt(last, 36))
	}
	return wire.PageOf(changes, next), nil
}

const (
	// auditStep is how many changes are read at once. A change of a setting may contain a megabyte
	// twice.
	auditStep = 20

	// mostSteps bounds how many times a call reads. A bound caller may read few of the changes.
	mostSteps = 100

	// mostAudited bounds a page of changes, in bytes of JSON. A page has at least one change.
	mostAudited = 8 << 20
)

// changes reads a page of at most limit changes that a grant may read. If there may be more, last is
// the revision of the last change that it looked at, and otherwise 0.
func (g *Group) changes(
	ctx context.Context, grant credentials.Grant, filter store.AuditFilter, limit int,
) (page []records.AuditView, last int64, err error) {
	size := 0
	for range mostSteps {
		filter.Limit = auditStep + 1
		if !grant.Bound() {
			filter.Limit = min(limit-len(page), auditStep) + 1
		}
		step, err := g.Status.Audit(ctx, filter)
		if err != nil {
			return nil, 0, err
		}
		for i := range step[:min(len(step), filter.Limit-1)] {
			v := step[i]
			if !scope.Audited(grant, &v) {
				filter.Before = v.Revision
				continue
			}
			data, err := json.Marshal(v)
			if err != nil {
				return nil, 0, fmt.Errorf("audit %d: %w", v.Revision, err)
			}
			size += len(data)
			if size > mostAudited && len(page) > 0 {
				return page, filter.Before, nil
			}
			page, filter.Before = append(page, v), v.Revision
			if len(page) == limit && i < len(step)-1 {
				return page, filter.Before, nil
			}
		}
		if len(step) < filter.Limit || len(page) >= limit {
			return page, 0, nil
		}
	}
	return page, filter.Before, nil
}

type verifyQuery struct {
	Expect string `query:"expect" bytes:"any" doc:"Hashes that the chain must contain, such as an earlier head. Up to 16, separated by commas, with 64 hexadecimal digits each."`
}

var chainHash = regexp.MustCompile(`^[0-9a-f]{64}$`)

// maxExpected bounds the hashes that one call looks for.
const maxExpected = 16

// verify reads the whole audit, so only one call at a time does it.
func (g *Group) verify(c *rest.Call, in *verifyQuery) (report records.AuditReport, err error) {
	var kept []string
	if in.Expect != "" {
		kept = strings.Split(strings.ToLower(in.Expect), ",")
	}
	var faults []problem.Fault
	if len(kept) > maxExpected {
		faults = append(faults, problem.Fault{Location: "query/expect", Message: fmt.Sprintf("want at most %d hashes, have %d", maxExpected,
			len(kept))})
	}
	if i := slices.IndexFunc(kept, func(hash string) bool { return !chainHash.MatchString(hash) }); i >= 0 {
		faults = append(faults, problem.Fault{Location: "query/expect", Message: fmt.Sprintf("want hashes of 64 hexadecimal digits, have %q",
			kept[i])})
	}
	if err := problem.Parameter(faults); err != nil {
		return report, err
	}
	select {
	case g.verifying <- struct{}{}:
	case <-c.Context().Done():
		return report, c.Context().Err()
	}
	defer func() { <-g.verifying }()
	return g.Status.VerifyAudit(c.Context(), kept)
}
