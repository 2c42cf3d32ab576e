package api_test

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"procaas/engine"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/credentials"
	"procaas/engine/model"
	"procaas/engine/store"
)

const claims = `
flows:
  - {id: expense, key: !$ event.payload.expense}
events:
  - type: expense-claimed
    payload:
      type: object
      additionalProperties: false
      required: [expense, sum, lines]
      properties:
        expense: {type: string, description: The number of the claim.}
        sum: {type: number}
        kind: {enum: [travel, food]}
        urgent: {type: boolean}
        lines: {type: array, minItems: 1,
          items: {type: object, required: [what], properties: {what: {type: string}, cost: {type: integer}}}}
        notes: {}
  - {type: expense-approved, payload: {type: object, required: [expense], properties: {expense: {type: string}, sum: {type: number}}}}
pipelines:
  - id: expense-claimed
    flow: expense
    shared-state: {limit: 100}
    stages:
      - id: wait
        handlers:
          - id: decision
            await: {event: [expense-approved, expense-noted], where: !$ awaited.payload.sum == event.payload.sum, timeout: 72h}
`

// claimsNode serves claims that wait for a decision.
func claimsNode(t *testing.T) node {
	t.Helper()
	return newNode(t, func(o *engine.Options) { o.Bundle = loadText(t, claims) })
}

var hidden = regexp.MustCompile(`name="id" value="([^"]+)"`)

// People submit events with the form that their schema makes, and learn at each field what is wrong with it. What waits for
// an event is a task, whose form knows what both events have in common.
func TestConsoleSubmitsEvents(t *testing.T) {
	t.Parallel()
	n, c := claimsNode(t), browser(t)
	at := n.url + "/console/submit"
	page := func(query string) string {
		t.Helper()
		code, _, body := do(t, c, http.MethodGet, at+query, nil)
		if code != http.StatusOK {
			t.Fatalf("%s: have %d\n%s", query, code, body)
		}
		return html.UnescapeString(body)
	}
	has := func(page string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(page, w) {
				t.Fatalf("want %q on the page, have\n%s", w, page)
			}
		}
	}
	has(page(""), `href="?type=expense-claimed"`, "No run waits for an event")
	form := page("?type=expense-claimed")
	has(form, `name="/payload/expense"`, "The number of the claim.", `<option value=""travel"">travel`, `<option value="true">true`,
		`name="/payload/lines/0/what"`, `name="/payload/notes" rows`)
	if strings.Index(form, "/payload/sum") > strings.Index(form, "/payload/kind") {
		t.Errorf("the fields do not stand in the order of the file\n%s", form)
	}
	id := hidden.FindStringSubmatch(form)[1]
	filled := url.Values{
		"type": {"expense-claimed"}, "id": {id}, "reason": {"the printer is broken"},
		"/payload/expense": {"e-1"}, "/payload/sum": {"forty"}, "/payload/kind": {`"food"`}, "/payload/lines/0/what": {""},
		"/payload/notes": {"{"},
	}
	_, _, body := do(t, c, http.MethodPost, at, filled)
	has(html.UnescapeString(body), `id="fault-/payload/notes">want JSON`, `value="forty"`, `<option value=""food"" selected>`)
	filled.Set("/payload/notes", "")
	var code int
	code, _, body = do(t, c, http.MethodPost, at, filled)
	if body = html.UnescapeString(body); code != http.StatusUnprocessableEntity {
		t.Errorf("have %d\n%s", code, body)
	}
	has(body, `id="fault-/payload/sum">want a number, have "forty"`, `id="fault-/payload/lines">want at least 1 element`)
	filled.Set("more", "/payload/lines")
	filled.Set("/payload/lines/0/what", "paper")
	_, _, body = do(t, c, http.MethodPost, at, filled)
	has(html.UnescapeString(body), `name="/payload/lines/1/what"`, `value="paper"`)
	filled.Del("more")
	filled.Set("/payload/sum", "40")
	filled.Set("/payload/urgent", "true")
	filled.Set("/payload/lines/1/cost", "")
	code, to, body := do(t, c, http.MethodPost, at, filled)
	if code != http.StatusSeeOther || !strings.HasPrefix(to, "/console/runs/") {
		t.Fatalf("have %d %s\n%s", code, to, body)
	}
	run, err := n.Run(t.Context(), strings.TrimPrefix(to, "/console/runs/"))
	if err != nil {
		t.Fatal(err)
	}
	have, _ := json.Marshal(run.Event.Payload)
	if string(have) != `{"expense":"e-1","kind":"food","lines":[{"what":"paper"}],"sum":40,"urgent":true}` ||
		run.Event.Source != "console/anonymous" {
		t.Errorf("have %s of %s", have, run.Event.Source)
	}
	if code, again, body := do(t, c, http.MethodPost, at, filled); code != http.StatusSeeOther || again != to {
		t.Errorf("pressed twice, want the same run, have %d %s\n%s", code, again, body)
	}
	audit, err := n.Audit(t.Context(), store.AuditFilter{Kind: store.AuditEvent, Limit: 10}, "")
	if err != nil || len(audit.Items) != 1 || audit.Items[0].Name != run.ID || audit.Items[0].Reason != "the printer is broken" {
		t.Errorf("have the audit %+v, %v", audit, err)
	}

	n.until(t, "the run waits", func() bool { return strings.Contains(page(""), "task-"+run.ID) })
	has(page(""), "type=expense-approved&run="+run.ID, "type=expense-noted&run="+run.ID)
	form = page("?type=expense-approved&run=" + run.ID)
	has(form, "awaited.payload.sum == event.payload.sum", `name="/payload/expense" value="e-1"`, `name="/payload/sum" value="40"`,
		`"limit": 100`, `"sum": 40`) // who decides sees what about
	has(page("?type=expense-noted&run="+run.ID), "No schema says", `"expense": "e-1"`)
	code, to, body = do(t, c, http.MethodPost, at, url.Values{
		"type": {"expense-approved"}, "run": {run.ID}, "id": {hidden.FindStringSubmatch(form)[1]}, "/payload/expense": {"e-1"},
		"/payload/sum": {"40"},
	})
	if code != http.StatusSeeOther || to != "/console/runs/"+run.ID {
		t.Fatalf("have %d %s\n%s", code, to, body)
	}
	n.until(t, "the run goes on", func() bool {
		run, err := n.Run(t.Context(), run.ID)
		return err == nil && run.Status == model.Succeeded
	})
	has(page("?type=expense-claimed"), "from="+run.ID)
	has(page("?type=expense-claimed&from="+run.ID), `value="paper"`, `name="/payload/sum" value="40"`)
}

// Submitters may sign in to submit, and see only that. Those of other pipelines, and viewers, submit nothing.
func TestConsoleSubmitsByRole(t *testing.T) {
	t.Parallel()
	n := claimsNode(t)
	made, err := n.NewToken(t.Context(), wire.NewToken{Name: "root", Role: string(credentials.RoleAdmin)})
	if err != nil {
		t.Fatal(err)
	}
	root := client.New(n.url, made.Secret)
	for role, want := range map[credentials.Role]struct {
		home, page string
		submits    int
	}{
		credentials.RoleSubmitter: {"/console/submit", `name="/payload/expense"`, http.StatusSeeOther},
		credentials.RoleOperator:  {"", `name="/payload/expense"`, http.StatusSeeOther},
		credentials.RoleViewer:    {"", "not to submit events", http.StatusForbidden},
	} {
		made, err := root.NewToken(t.Context(), wire.NewToken{Name: "the-" + string(role), Role: string(role)})
		if err != nil {
			t.Fatal(err)
		}
		c := browser(t)
		if code, _, body := do(t, c, http.MethodPost, n.url+"/console/sign-in", url.Values{"token": {made.Secret}}); code != http.StatusSeeOther {
			t.Fatalf("%s signs in: have %d\n%s", role, code, body)
		}
		if _, to, _ := do(t, c, http.MethodGet, n.url+"/", nil); to != want.home {
			t.Errorf("%s is led to %q, want %q", role, to, want.home)
		}
		_, _, form := do(t, c, http.MethodGet, n.url+"/console/submit?type=expense-approved&key=e-9", nil)
		if !strings.Contains(form, want.page) {
			t.Errorf("%s: want %q on the page, have\n%s", role, want.page, form)
		}
		code, to, body := do(t, c, http.MethodPost, n.url+"/console/submit", url.Values{
			"type": {"expense-approved"}, "id": {string(role)}, "/payload/expense": {"e-9"},
		})
		if code != want.submits {
			t.Errorf("%s: have %d %s\n%s", role, code, to, body)
		}
		if role != credentials.RoleSubmitter {
			continue
		}
		if strings.Contains(form, "/console/runs") || !strings.HasPrefix(to, "/console/submit?done=") {
			t.Errorf("a submitter sees too much, or not what has become of the event: %s\n%s", to, form)
		}
		if code, _, _ := do(t, c, http.MethodGet, n.url+"/console/runs", nil); code != http.StatusForbidden {
			t.Errorf("a submitter looks at runs: have %d", code)
		}
	}
}
