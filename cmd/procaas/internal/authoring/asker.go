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
	answers bool // a person can answer
}

// ask returns the trimmed answer. It is empty at the end of the input.
func (a asker) ask(question string) string {
	fmt.Fprintf(a.to, "%s: ", question)
	answer, err := a.from.ReadString('\n')
	if err != nil {
		fmt.Fprintln(a.to)
	}
	return strings.TrimSpace(answer)
}

// yes asks for yes or no until it gets one. The end of the input means no.
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
