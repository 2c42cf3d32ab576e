package diff

import (
	"fmt"
	"io"
	"strings"
)

// Write writes differences for people, one per line, with details indented below.
func Write(w io.Writer, d Diff) error {
	var b strings.Builder
	for _, c := range d.Changes {
		c.text(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Short describes the differences in one line: the first change, and how many more there are.
func (d Diff) Short() string {
	if len(d.Changes) == 0 {
		return "nothing that counts"
	}
	c := d.Changes[0]
	text := fmt.Sprintf("%s %s %s", diffMarks[c.Change], c.What, c.Name)
	if more := len(d.Changes) - 1; more > 0 {
		text += fmt.Sprintf(", %d more", more)
	}
	return text
}

var diffMarks = map[string]string{Added: "+", Removed: "-", Changed: "~", Moved: ">"}

func (c Difference) text(b *strings.Builder) {
	if c.What == Order {
		c.order(b)
		return
	}
	fmt.Fprintf(b, "%s %s %s", diffMarks[c.Change], c.What, c.Name)
	if c.Why != "" {
		fmt.Fprintf(b, ": %s", c.Why)
	}
	b.WriteString("\n")
	for _, f := range c.Fields {
		fmt.Fprintf(b, "    %s: %s -> %s\n", f.Field, given(f.Old), given(f.New))
	}
}

// order describes which handler waits for which.
func (c Difference) order(b *strings.Builder) {
	if c.Change == Added {
		fmt.Fprintf(b, "+ order %s now waits for %s: %s\n", c.Name, c.Fields[0].New, c.Why)
		return
	}
	fmt.Fprintf(b, "- order %s does not wait for %s any more; before: %s\n", c.Name, c.Fields[0].Old, c.Why)
}

func given(text string) string {
	if text == "" {
		return "(not given)"
	}
	return text
}
