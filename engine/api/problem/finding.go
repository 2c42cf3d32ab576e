package problem

import "procaas/dsl/diag"

// A Finding is a diagnostic of a pipeline file.
type Finding struct {
	File      string `json:"file" doc:"The file, as the server was given it."`
	Line      int    `json:"line" doc:"The line of its first character, from 1."`
	Column    int    `json:"column" doc:"The column of its first character, from 1."`
	EndLine   int    `json:"end_line" doc:"The line in which it ends."`
	EndColumn int    `json:"end_column" doc:"The column after its last character."`
	Severity  string `json:"severity" enum:"error,warning,advice" doc:"The server refuses pipelines with an error, but not those with a warning or advice."`
	Code      string `json:"code" doc:"The code, such as PC0103. procaas explain explains it."`
	Message   string `json:"message" doc:"What is wrong, for people."`
	Hint      string `json:"hint" doc:"How to fix it; may be empty."`
}

// Findings converts diagnostics for replies.
func Findings(found []diag.Diagnostic) []Finding {
	var out []Finding
	for _, d := range found {
		out = append(out, Finding{
			File: d.File, Line: d.Start.Line, Column: d.Start.Column, EndLine: d.End.Line, EndColumn: d.End.Column,
			Severity: string(d.Severity), Code: string(d.Code), Message: d.Message, Hint: d.Hint,
		})
	}
	return out
}
