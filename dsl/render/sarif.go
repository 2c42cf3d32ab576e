package render

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// The elements of a SARIF 2.1.0 log that code scanning services read. Names are
// those of the standard.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name  string      `json:"name"`
		Rules []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID         string          `json:"id"`
		Short      sarifMessage    `json:"shortDescription"`
		Full       sarifMessage    `json:"fullDescription"`
		Help       sarifMessage    `json:"help"`
		Default    sarifDefault    `json:"defaultConfiguration"`
		Properties sarifProperties `json:"properties"`
	}
	sarifMessage struct {
		Text     string `json:"text"`
		Markdown string `json:"markdown,omitempty"`
	}
	sarifDefault struct {
		Level string `json:"level"`
	}
	sarifProperties struct {
		Severity string   `json:"problem.severity"`
		Tags     []string `json:"tags"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    int               `json:"ruleIndex"`
		Level        string            `json:"level"`
		Message      sarifMessage      `json:"message"`
		Locations    []sarifLocation   `json:"locations"`
		Related      []sarifLocation   `json:"relatedLocations,omitempty"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		ID       int           `json:"id,omitempty"`
		Message  *sarifMessage `json:"message,omitempty"`
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
		EndLine     int `json:"endLine"`
		EndColumn   int `json:"endColumn"`
	}
)

// WriteSARIF writes one run with the rules that have findings. documented has the rules of the language: a finding of
// another rule has only its code.
func WriteSARIF(w io.Writer, files []diag.File, ds []diag.Diagnostic, documented []rules.Rule) error {
	rules := sarifRules(ds, documented)
	index := make(map[diag.Code]int, len(rules))
	for i, rule := range rules {
		index[diag.Code(rule.ID)] = i
	}
	prints := fingerprints{lines: make(map[string][]string, len(files)), seen: map[string]int{}}
	for _, f := range files {
		prints.lines[f.Name] = strings.Split(string(f.Data), "\n")
	}
	results := make([]sarifResult, 0, len(ds))
	for _, d := range ds {
		text := d.Message
		if d.Hint != "" {
			text += "\nhelp: " + d.Hint
		}
		result := sarifResult{
			RuleID: string(d.Code), RuleIndex: index[d.Code], Level: sarifLevel(d.Severity), Message: sarifText(text),
			Locations: []sarifLocation{{Physical: sarifPlace(d.Span)}}, Fingerprints: map[string]string{"primaryLocationLineHash": prints.of(d)},
		}
		for i, other := range d.Related {
			message := sarifText(other.Message)
			result.Related = append(result.Related, sarifLocation{ID: i + 1, Message: &message, Physical: sarifPlace(other.Span)})
		}
		results = append(results, result)
	}
	return datum.WriteJSON(w, sarifLog{
		Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0",
		Runs: []sarifRun{{Tool: sarifTool{sarifDriver{"procaas", rules}}, ColumnKind: "unicodeCodePoints", Results: results}},
	})
}

// sarifRules describes the rules that have findings, in the order of their codes.
func sarifRules(ds []diag.Diagnostic, all []rules.Rule) []sarifRule {
	known := map[diag.Code]rules.Rule{}
	for _, rule := range all {
		known[rule.Code] = rule
	}
	rules, seen := []sarifRule{}, map[diag.Code]bool{}
	for _, d := range ds {
		if seen[d.Code] {
			continue
		}
		seen[d.Code] = true
		rule := known[d.Code]
		severity := string(d.Severity)
		if d.Severity == diag.Advice {
			severity = "recommendation"
		}
		rules = append(rules, sarifRule{
			ID:    string(d.Code),
			Short: sarifMessage{Text: cmp.Or(rule.Title, string(d.Code))},
			Full:  sarifMessage{Text: cmp.Or(rule.Why, string(d.Code))},
			Help: sarifMessage{
				Text: PrintableLines(fmt.Sprintf("%s\n\nbefore:\n\n%s\n\nafter:\n\n%s\n", rule.Why, rule.Before, rule.After)),
				Markdown: PrintableLines(fmt.Sprintf("%s\n\nBefore:\n\n```yaml\n%s\n```\n\nAfter:\n\n```yaml\n%s\n```\n",
					rule.Why, strings.TrimRight(rule.Before, "\n"), strings.TrimRight(rule.After, "\n"))),
			},
			Default:    sarifDefault{sarifLevel(d.Severity)},
			Properties: sarifProperties{severity, []string{"procaas"}},
		})
	}
	slices.SortFunc(rules, func(a, b sarifRule) int { return cmp.Compare(a.ID, b.ID) })
	return rules
}

// sarifLevel returns the level of a severity in SARIF.
func sarifLevel(s diag.Severity) string {
	if s == diag.Advice {
		return "note"
	}
	return string(s)
}

// sarifText escapes links in a message, since it contains text of the author's files.
func sarifText(text string) sarifMessage {
	return sarifMessage{Text: PrintableLines(strings.ReplaceAll(text, "](", "] ("))}
}

// sarifPlace returns the position of a finding. Without a known position it is the start of the file, since
// services drop findings without a line.
func sarifPlace(at diag.Span) sarifPhysical {
	region := sarifRegion{max(at.Start.Line, 1), max(at.Start.Column, 1), max(at.End.Line, at.Start.Line, 1), max(at.End.Column, 1)}
	if region.EndLine == region.StartLine {
		region.EndColumn = max(region.EndColumn, region.StartColumn+1)
	}
	uri := url.URL{Path: at.File}
	if path.IsAbs(at.File) {
		uri.Scheme = "file"
	}
	return sarifPhysical{sarifArtifact{uri.String()}, region}
}

// fingerprints identify the same finding in two versions of a file, by the text of its line instead of its
// number.
type fingerprints struct {
	lines map[string][]string // by the name of the file
	seen  map[string]int
}

func (p fingerprints) of(d diag.Diagnostic) string {
	line := ""
	if lines := p.lines[d.File]; d.Start.Line > 0 && d.Start.Line <= len(lines) {
		line = strings.Join(strings.Fields(lines[d.Start.Line-1]), " ")
	}
	sum := sha256.Sum256([]byte(d.File + "\x00" + string(d.Code) + "\x00" + line))
	hash := hex.EncodeToString(sum[:8])
	p.seen[hash]++
	return fmt.Sprintf("%s:%d", hash, p.seen[hash])
}
