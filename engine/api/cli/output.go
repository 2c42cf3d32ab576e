package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
)

// An Output is standard output or standard error. All text of all commands passes through it.
//
// Much of that text comes from others: payloads, errors of services, names in files, replies of servers. A
// terminal obeys control characters in it, which can hide text or fake an answer. So an Output shows them as
// text, such as \x1b. JSON stays the same value, because what encoding/json leaves as it is becomes \u009b.
type Output struct {
	file io.Writer

	mu    sync.Mutex // guards what follows, and keeps the order of writes
	color bool       // let the colours of this program pass
	tail  []byte     // the begin of a character or colour whose rest is in the next write
	err   error      // the first error of writing
	queue *logQueue  // nil until Detach
}

// NewOutput returns the output to a file.
func NewOutput(file io.Writer) *Output { return &Output{file: file, color: Colorful(file)} }

// Outputs returns s with both outputs as an [Output]. close writes what is left and returns the first error of
// standard output.
func Outputs(s Streams) (guarded Streams, close func() error) {
	out := NewOutput(s.Out)
	errs := out
	if s.Err != s.Out {
		errs = NewOutput(s.Err)
	}
	return Streams{s.In, out, errs}, func() error {
		errs.close()
		if errs != out {
			out.close()
		}
		return out.err
	}
}

// Write implements [io.Writer].
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := p
	if len(o.tail) > 0 {
		text = append(o.tail, p...)
	}
	var clean []byte
	clean, o.tail = cleaned(text, o.color)
	o.tail = bytes.Clone(o.tail)
	if err := o.put(clean); err != nil {
		return 0, err
	}
	return len(p), nil
}

// put writes text as it is, or queues it. The caller holds mu.
func (o *Output) put(text []byte) error {
	if o.queue != nil {
		o.queue.put(text)
		return nil
	}
	_, err := o.file.Write(text)
	if o.err == nil {
		o.err = err
	}
	return err
}

// close writes what is left.
func (o *Output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.tail) > 0 {
		_ = o.put(Clean(o.tail, false)) // the error is in o.err
		o.tail = nil
	}
	if o.queue != nil {
		o.queue.close(flushTime)
	}
}

// flushTime is how long a process that ends waits for the reader of its log.
const flushTime = 2 * time.Second

// Control writes control characters of this program, which an [Output] would show as text otherwise.
func Control(w io.Writer, sequence string) error {
	o, ok := w.(*Output)
	if !ok {
		_, err := io.WriteString(w, sequence)
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.put([]byte(sequence))
}

// Exact returns a writer for the text of a file, which a program reads: standard output itself if it is no terminal.
func Exact(w io.Writer) io.Writer {
	if o, ok := w.(*Output); ok && !Terminal(w) {
		return exact{o}
	}
	return w
}

// exact is an [Output] that changes nothing.
type exact struct{ *Output }

// Write implements [io.Writer].
func (e exact) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.put(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Detach lets nothing that reads standard error stop this process. From now on writes to it go to a queue and
// never wait. note formats the line that says how many lines were lost.
func (s Streams) Detach(note func(lost uint64) []byte) {
	if o, ok := s.Err.(*Output); ok {
		o.detach(note)
	}
}

func (o *Output) detach(note func(lost uint64) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queue == nil {
		o.queue = newLogQueue(o.file)
	}
	o.queue.setNote(note)
}

// Lost returns how many lines of standard error were lost.
func (s Streams) Lost() uint64 {
	o, ok := s.Err.(*Output)
	if !ok {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queue == nil {
		return 0
	}
	return o.queue.lost.Load()
}

// File returns the file behind a stream, or nil.
func File(stream any) *os.File {
	if o, ok := stream.(*Output); ok {
		stream = o.file
	}
	f, _ := stream.(*os.File)
	return f
}

// Colorful reports whether w is a terminal with colours.
func Colorful(w io.Writer) bool {
	return Terminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Terminal reports whether a stream is a terminal.
func Terminal(stream any) bool {
	f := File(stream)
	return f != nil && isatty.IsTerminal(f.Fd())
}

// colors are the sequences by which this program colours text, here and in its log. They can only change the
// look of the text after them.
var colors = strings.Fields("0 1 2 22 31 32 33 36 91 92 93 1;31 1;33 1;34 1;36 2;91")

// Clean shows control characters as text. If color is set, the colours of this program pass.
func Clean(text []byte, color bool) []byte {
	clean, tail := cleaned(text, color)
	for _, c := range tail {
		if c >= ' ' && c < utf8.RuneSelf {
			clean = append(clean, c)
		} else {
			clean = fmt.Appendf(clean, `\x%02x`, c)
		}
	}
	return clean
}

// cleaned returns text with control characters shown as text, and an incomplete character or colour at its end.
func cleaned(text []byte, color bool) (clean, tail []byte) {
	copied := 0 // of text
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c < 0x7f || c == '\n' || c == '\t' {
			i++
			continue
		}
		if c == '\x1b' && color {
			size, more := colorAt(text[i:])
			if more {
				return append(clean, text[copied:i]...), text[i:]
			}
			if size > 0 {
				i += size
				continue
			}
		}
		if !utf8.FullRune(text[i:]) {
			return append(clean, text[copied:i]...), text[i:]
		}
		r, size := utf8.DecodeRune(text[i:])
		if isBad := r == utf8.RuneError && size == 1; isBad || misleads(r) {
			clean = append(clean, text[copied:i]...)
			if isBad || r < ' ' {
				clean = fmt.Appendf(clean, `\x%02x`, c)
			} else {
				clean = fmt.Appendf(clean, `\u%04x`, r)
			}
			copied = i + size
		}
		i += size
	}
	if copied == 0 {
		return text, nil
	}
	return append(clean, text[copied:]...), nil
}

// colorAt returns the size of a colour at the begin of text, or whether it may become one.
func colorAt(text []byte) (size int, more bool) {
	for _, c := range colors {
		sequence := "\x1b[" + c + "m"
		if bytes.HasPrefix(text, []byte(sequence)) {
			return len(sequence), false
		}
		more = more || strings.HasPrefix(sequence, string(text))
	}
	return 0, more
}

// misleads reports whether a terminal obeys a character, or an editor shows the text around it in another order.
func misleads(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}
