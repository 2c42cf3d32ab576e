package checkpoint

import (
	"strconv"
	"strings"
	"time"

	"procaas/engine/model"
)

// This file encodes checkpoints. There is one after each handler, and reflection would take a tenth
// of the processor time of a short run. A test fills each field and decodes it again.

// Encode writes the checkpoint as JSON.
func (c *Run) Encode() []byte {
	w := NewWriter(c, 256+256*len(c.Handlers)+128*len(c.Shared))
	for i := range c.Handlers {
		w.Add(&c.Handlers[len(c.Handlers)-1-i])
	}
	return w.End(c)
}

// A Writer writes a checkpoint handler by handler, the last one first.
type Writer struct {
	of    frame
	b     jsonText
	first int // where the list of handlers begins
}

// A frame is what the records of a run need not repeat.
type frame struct {
	pipeline string
	began    time.Time
}

// A Part is where the record of a handler lies in a checkpoint. The zero Part is none.
type Part struct{ from, to int32 }

// NewWriter begins to write a checkpoint. It ignores its Handlers. It has room for a number of bytes, and finds more if the
// checkpoint is longer.
func NewWriter(c *Run, size int) Writer {
	of := frame{c.Pipeline, c.Began}
	b := make(jsonText, 0, size)
	b = b.number(`{"stage":`, c.Stage)
	b = b.textOr(`,"ended":`, string(c.Ended)).textOr(`,"failed_handler":`, c.FailedPath)
	b = b.textOr(`,"error":`, c.Failure).textOr(`,"error_class":`, c.Class).textOr(`,"reason":`, c.Reason).textOr(`,"stopping":`, c.Stopping)
	if c.Undoing {
		b = append(b, `,"undoing":true`...)
	}
	b = b.textOr(`,"closing":`, string(c.Closing))
	b = b.atOr(`,"clock":`, of, c.Clock).atOr(`,"stage_clock":`, of, c.StageClock)
	b = b.numberOr(`,"stood_ns":`, int(c.Stood)).atOr(`,"paused":`, of, c.Paused)
	b = b.numberOr(`,"parts":`, c.Parts).numberOr(`,"looped":`, c.Looped)
	b = b.listOr(`,"redone":`, c.Redone)
	if len(c.Outputs) > 0 {
		b = append(append(b, `,"outputs":`...), c.Outputs...)
	}
	b = b.values(`,"shared_state":{`, c.Shared).listOr(`,"wrote":`, c.Wrote)
	b = append(b, `,"handlers":[`...)
	return Writer{of: of, b: b, first: len(b)}
}

// Add writes the record of a handler.
func (w *Writer) Add(r *Record) Part {
	w.separate()
	from := len(w.b)
	w.b = w.b.record(w.of, r)
	return Part{int32(from), int32(len(w.b))}
}

// Copy writes a record that has not changed since an earlier checkpoint of the run.
func (w *Writer) Copy(earlier []byte, at Part) Part {
	w.separate()
	from := len(w.b)
	w.b = append(w.b, earlier[at.from:at.to]...)
	return Part{int32(from), int32(len(w.b))}
}

func (w *Writer) separate() {
	if len(w.b) > w.first {
		w.b = append(w.b, ',')
	}
}

// End writes the rest of the run that the writer was made for, and returns the checkpoint.
func (w *Writer) End(c *Run) []byte {
	b := append(w.b, ']')
	b = b.numberOr(`,"generation":`, c.Generation).textOr(`,"state":`, c.State).textOr(`,"makes_up":`, c.MakesUp)
	if len(c.Inputs) > 0 {
		b = append(append(b, `,"inputs":`...), c.Inputs...)
	}
	if c.Recording != nil {
		b = append(append(b, `,"recording":`...), model.EncodeJSON(c.Recording)...)
	}
	return append(b.time(`,"began":`, c.Began).text(`,"pipeline":`, c.Pipeline).number(`,"v":`, c.Format), '}')
}

func (b jsonText) record(of frame, r *Record) jsonText {
	start := len(b)
	path, below := strings.CutPrefix(r.Path, of.pipeline)
	if !below || !strings.HasPrefix(path, "/") {
		path = r.Path
	}
	b = b.textOr(`,"path":`, path).numberOr(`,"item":`, r.Item)
	ok := r.Outcome == model.OutcomeSucceeded && r.Status == okStatus
	if ok {
		b = b.number(`,"ok":`, r.Attempts)
	} else {
		b = b.textOr(`,"outcome":`, r.Outcome).numberOr(`,"attempts":`, r.Attempts)
	}
	b = b.numberOr(`,"failures":`, r.Failures)
	if r.Unknown {
		b = append(b, `,"unknown":true`...)
	}
	b = b.numberOr(`,"asked":`, r.Asked)
	b = b.atOr(`,"at":`, of, r.Started).atOr(`,"end":`, of, r.Finished).atOr(`,"due":`, of, r.Due)
	b = b.numberOr(`,"delay_ns":`, int(r.Delay)).atOr(`,"held":`, of, r.Held).atOr(`,"clock":`, of, r.Clock)
	b = b.textOr(`,"error":`, r.Error).textOr(`,"class":`, r.Class).textOr(`,"reason":`, r.Reason)
	if len(r.Response) > 0 {
		b = append(b, `,"response":`...)
		b = append(b, r.Response...)
	}
	if !ok {
		b = b.numberOr(`,"status":`, r.Status)
	}
	b = b.listOr(`,"emitted":`, r.Emitted).numberOr(`,"heard":`, r.Heard).textOr(`,"again":`, r.Again)
	if r.Each != nil {
		b = b.each(of, r.Each)
	}
	if len(r.Saw) > 0 {
		b = b.values(`,"saw":{`, r.Saw)
	}
	if len(r.Was) > 0 {
		b = b.values(`,"was":{`, r.Was)
	}
	b = b.listOr(`,"wide":`, r.Wide)
	for i, t := range r.Tries {
		b = append(b, [...]string{`,"tries":[`, ","}[min(i, 1)]...)
		at := len(b)
		b = b.atOr(`,"began":`, of, t.Began).atOr(`,"ended":`, of, t.Ended).textOr(`,"error":`, t.Error).object(at)
	}
	if len(r.Tries) > 0 {
		b = append(b, ']')
	}
	b = b.numberOr(`,"done":`, r.Done)
	if r.Borrowed {
		b = append(b, `,"borrowed":true`...)
	}
	if r.Undo != nil {
		b = append(b, `,"undo":`...).record(of, r.Undo)
	}
	if r.Call != nil {
		b = append(append(b, `,"call":`...), r.Call.Encode()...)
	}
	for i := range r.Trail {
		if i == 0 {
			b = append(b, `,"trail":[`...)
		} else {
			b = append(b, ',')
		}
		b = b.record(of, &r.Trail[i])
	}
	if len(r.Trail) > 0 {
		b = append(b, ']')
	}
	return b.object(start)
}

func (b jsonText) each(of frame, e *Each) jsonText {
	b = append(b, `,"each":`...)
	start := len(b)
	if len(e.Items) > 0 {
		b = append(b, `,"items":`...)
		b = append(b, e.Items...)
	}
	b = b.numberOr(`,"total":`, e.Total).numberOr(`,"succeeded":`, e.Succeeded).numberOr(`,"failed":`, e.Failed).textOr(`,"done":`, e.Done)
	for i := range e.Of {
		if i == 0 {
			b = append(b, `,"of":[`...)
		} else {
			b = append(b, ',')
		}
		b = b.record(of, &e.Of[i])
	}
	if len(e.Of) > 0 {
		b = append(b, ']')
	}
	return b.object(start)
}

// object makes an object of the fields since start, each preceded by a comma.
func (b jsonText) object(start int) jsonText {
	if len(b) == start {
		return append(b, "{}"...)
	}
	b[start] = '{'
	return append(b, '}')
}

// A jsonText is growing JSON. Its methods append a name with a value. Those that end in Or omit
// zero values.
type jsonText []byte

func (b jsonText) number(name string, n int) jsonText {
	return strconv.AppendInt(append(b, name...), int64(n), 10)
}

func (b jsonText) numberOr(name string, n int) jsonText {
	if n == 0 {
		return b
	}
	return b.number(name, n)
}

func (b jsonText) text(name, s string) jsonText {
	return model.AppendText(append(b, name...), s)
}

func (b jsonText) textOr(name, s string) jsonText {
	if s == "" {
		return b
	}
	return b.text(name, s)
}

func (b jsonText) time(name string, t time.Time) jsonText {
	b = append(append(b, name...), '"')
	return append(t.AppendFormat(b, time.RFC3339Nano), '"')
}

// atOr appends a time as milliseconds since the run began. If that is not exact, it appends the
// full time.
func (b jsonText) atOr(name string, of frame, t time.Time) jsonText {
	if t.IsZero() {
		return b
	}
	since := t.Sub(of.began)
	if of.began.IsZero() || since%time.Millisecond != 0 || !of.began.Add(since).Equal(t) {
		return b.time(name, t)
	}
	return b.number(name, int(since/time.Millisecond))
}

// values appends a name, up to the opening brace, with JSON values.
func (b jsonText) values(name string, values Values) jsonText {
	b = append(b, name...)
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b.text("", v.Name), ':')
		b = append(b, v.Raw...)
	}
	return append(b, '}')
}

func (b jsonText) listOr(name string, list []string) jsonText {
	if len(list) == 0 {
		return b
	}
	b = append(b, name...)
	for i, s := range list {
		b = append(b, "[,"[min(i, 1)])
		b = b.text("", s)
	}
	return append(b, ']')
}
