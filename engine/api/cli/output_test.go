package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
)

func TestControlCharactersBecomeText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, plain, colored string }{
		{"a line\n\tand a tab ✓ 語", "a line\n\tand a tab ✓ 語", "a line\n\tand a tab ✓ 語"},
		{"\x1b[1;31mred\x1b[0m", `\x1b[1;31mred\x1b[0m`, "\x1b[1;31mred\x1b[0m"},
		{"\x1b[2J\x1b]0;title\a", `\x1b[2J\x1b]0;title\x07`, `\x1b[2J\x1b]0;title\x07`},
		{"\x1b[8mhidden\x1b[5;31m", `\x1b[8mhidden\x1b[5;31m`, `\x1b[8mhidden\x1b[5;31m`},
		{"fine\rfake\b\x00\x7f", `fine\x0dfake\x08\x00\u007f`, `fine\x0dfake\x08\x00\u007f`},
		{"\u009b31m\u202egnp.exe\u2066\u2028", `\u009b31m\u202egnp.exe\u2066\u2028`, `\u009b31m\u202egnp.exe\u2066\u2028`},
		{"\x9b31m\xff", `\x9b31m\xff`, `\x9b31m\xff`},
		{"cut \x1b[1", `cut \x1b[1`, `cut \x1b[1`},
		{"cut \xe2\x82", `cut \xe2\x82`, `cut \xe2\x82`},
	} {
		for _, color := range []bool{false, true} {
			want := c.plain
			if color {
				want = c.colored
			}
			// Whoever writes may cut the text anywhere.
			for size := range len(c.text) + 1 {
				var out bytes.Buffer
				o := &Output{file: &out, color: color}
				_, _ = io.WriteString(o, c.text[:size])
				_, _ = io.WriteString(o, c.text[size:])
				o.close()
				if out.String() != want {
					t.Errorf("%q with color %t, cut at %d: want %q, have %q", c.text, color, size, want, out.String())
				}
			}
			if have := string(Clean([]byte(c.text), color)); have != want {
				t.Errorf("%q with color %t: want %q, have %q", c.text, color, want, have)
			}
		}
	}
}

// TestJSONKeepsItsMeaning prints a value with every character that is escaped, and reads it.
func TestJSONKeepsItsMeaning(t *testing.T) {
	t.Parallel()
	var hostile strings.Builder
	for r := range rune(0x3000) {
		hostile.WriteRune(r)
	}
	var out bytes.Buffer
	s, closeOutputs := Outputs(Streams{Out: &out, Err: io.Discard})
	if err := errors.Join(s.PrintJSON(hostile.String()), closeOutputs()); err != nil {
		t.Fatal(err)
	}
	var have string
	if err := json.Unmarshal(out.Bytes(), &have); err != nil || have != hostile.String() {
		t.Errorf("the value has changed: %v", err)
	}
	if have := out.String(); have != string(Clean([]byte(have), false)) {
		t.Error("control characters are in the output")
	}
}

// A broken pipe or disk is an error of a command, though it worked.
func TestLostOutputIsNoSuccess(t *testing.T) {
	t.Parallel()
	for err, told := range map[error]bool{syscall.EPIPE: false, syscall.ENOSPC: true} {
		var errs bytes.Buffer
		s, closeOutputs := Outputs(Streams{Out: failing{err}, Err: &errs})
		fmt.Fprintln(s.Out, "lost")
		if code := EndOutput(s, ExitFine, closeOutputs()); code != ExitBroken || (errs.Len() > 0) != told {
			t.Errorf("%v: have exit code %d and %q", err, code, errs.String())
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestALogWithoutReaderIsCounted fills the queue while nobody reads, and then reads all.
func TestALogWithoutReaderIsCounted(t *testing.T) {
	t.Parallel()
	reader, file := io.Pipe()
	s := Streams{Err: NewOutput(file)}
	s.Detach(func(lost uint64) []byte { return fmt.Appendf(nil, "%d lines dropped\n", lost) })
	line := strings.Repeat("x", 1000)
	written := uint64(0)
	for ; s.Lost() < 5; written++ {
		fmt.Fprintf(s.Err, "%d %s\n", written, line)
	}
	read := make(chan string)
	go func() {
		all, _ := io.ReadAll(reader)
		read <- string(all)
	}()
	// The queue has room again only after it has told what is missing.
	s.Err.(*Output).close()
	_ = file.Close()
	kept := int(written - 5)
	lines := strings.Split(strings.TrimSpace(<-read), "\n")
	if len(lines) != kept+1 || lines[kept] != "5 lines dropped" || !strings.HasPrefix(lines[kept-1], fmt.Sprint(kept-1, " ")) {
		t.Errorf("of %d lines, %d came; the last is %.40q", written, len(lines), lines[len(lines)-1])
	}
	if kept*len(line) < maxQueued/2 {
		t.Errorf("only %d lines are kept", kept)
	}
}

func TestALogWhoseReaderIsGoneIsCounted(t *testing.T) {
	t.Parallel()
	s := Streams{Err: NewOutput(failing{syscall.EPIPE})}
	s.Detach(func(uint64) []byte { return nil })
	fmt.Fprintln(s.Err, "one")
	fmt.Fprintln(s.Err, "two")
	s.Err.(*Output).close()
	if have := s.Lost(); have != 2 {
		t.Errorf("want 2 lost lines, have %d", have)
	}
}

// TestAStoppedReaderDoesNotKeepTheProcess closes an output that nobody reads.
func TestAStoppedReaderDoesNotKeepTheProcess(t *testing.T) {
	t.Parallel()
	reader, file := io.Pipe()
	q := newLogQueue(file)
	q.put([]byte("nobody reads this"))
	q.close(0)
	_ = reader.Close()
	<-q.done
}
