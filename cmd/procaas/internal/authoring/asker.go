package authoring

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// An asker asks questions.
type asker struct {
	from    *bufio.Reader
	to      io.Writer
	answers bool // somebody is there to answer
}

// ask returns the answer, without blanks around it; empty at the end of the input.
func (a asker) ask(question string) string {
	fmt.Fprintf(a.to, "%s: ", question)
	answer, err := a.from.ReadString('\n')
	if err != nil {
		fmt.Fprintln(a.to)
	}
	return strings.TrimSpace(answer)
}

// yes asks for yes or no, again when the answer is neither. The end of the input
// is no.
func (a asker) yes(question string) bool {
	for range 3 {
		switch answer := strings.ToLower(a.ask(question + " [y/n]")); {
		case answer == "":
			return false
		case strings.HasPrefix("yes", answer):
			return true
		case strings.HasPrefix("no", answer):
			return false
		}
		fmt.Fprintln(a.to, "Please answer y or n.")
	}
	return false
}
