package runview

import (
	"fmt"
	"strings"

	"procaas/engine/api/cli"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/store"
)

// mostRetries is how many retries of a run are shown, the last ones.
const mostRetries = 5

// Before describes the state of a run before each retry and make-up, one per line. Only the audit has it, since
// they reset a handler.
func Before(q *cli.Call, v checkpoint.RunView) string {
	if v.Generation == 0 {
		return ""
	}
	changes, err := q.Audit(q.Ctx, store.AuditFilter{Kind: store.AuditRun, Name: v.ID, Limit: 20}, "")
	if err != nil {
		return "" // the rest is shown anyway
	}
	var lines []string
	for _, c := range changes.Items {
		if line := beforeText(c); line != "" && len(lines) < mostRetries {
			lines = append([]string{line}, lines...)
		}
	}
	return strings.Join(lines, "")
}

// beforeText describes one retry, or returns "" for another change.
func beforeText(c records.AuditView) string {
	text := func(of any, field string) string {
		values, _ := of.(map[string]any)
		text, _ := values[field].(string)
		return text
	}
	if text(c.After, "status") != "waiting" || text(c.Before, "status") == "" {
		return ""
	}
	was := text(c.Before, "status")
	if why := text(c.Before, "error"); why != "" {
		was += ": " + strings.Join(strings.Fields(why), " ")
	} else if path := text(c.Before, "failed_handler"); path != "" {
		was += " in " + path
	}
	reason := ""
	if c.Reason != "" {
		reason = " (" + c.Reason + ")"
	}
	what := "retry"
	if was == string(model.Succeeded) {
		what = "make-up"
	}
	return fmt.Sprintf("before the %s by %s at %s%s: %s\n", what, c.By, cli.Time(c.Changed), reason, was)
}
