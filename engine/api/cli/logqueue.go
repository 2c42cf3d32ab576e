package cli

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// A logQueue writes lines in the order in which they came, without ever making anybody wait. If what reads the
// log is slower than the log, the queue fills up and later lines are lost. They are counted. Once everything
// before them is written, one line says how many are missing at this place.
type logQueue struct {
	to   io.Writer
	lost atomic.Uint64 // lines that nobody will read
	wake chan struct{} // size 1: there are lines, or the queue closes
	done chan struct{} // closed when the writer has ended

	mu      sync.Mutex // guards what follows
	lines   [][]byte
	bytes   int    // of lines, and of those that are being written
	missing uint64 // lines lost after those in lines
	closing bool
	note    func(lost uint64) []byte
}

// A queue keeps maxQueued bytes, some thousand lines. A line counts lineCost bytes more than it has.
const (
	maxQueued = 1 << 20
	lineCost  = 64
)

func newLogQueue(to io.Writer) *logQueue {
	q := &logQueue{to: to, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go q.run()
	return q
}

// setNote sets the format of the line that says how many lines are missing.
func (q *logQueue) setNote(note func(lost uint64) []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.note = note
}

// put queues a line, or counts it as lost. Once a line is lost, so are all that follow it until the queue drains:
// the missing ones are then at one place.
func (q *logQueue) put(line []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if cost := len(line) + lineCost; q.missing == 0 && q.bytes+cost <= maxQueued {
		q.lines = append(q.lines, bytes.Clone(line))
		q.bytes += cost
	} else {
		q.missing++
		q.lost.Add(1)
	}
	q.wakeUp()
}

func (q *logQueue) wakeUp() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// run writes lines until the queue is closed and empty.
func (q *logQueue) run() {
	defer close(q.done)
	for range q.wake {
		for q.writeAll() {
		}
		if q.ended() {
			return
		}
	}
}

// writeAll writes the queued lines. It reports whether there were any.
func (q *logQueue) writeAll() bool {
	q.mu.Lock()
	lines, missing, note := q.lines, q.missing, q.note
	q.lines, q.missing = nil, 0
	q.mu.Unlock()
	for _, line := range lines {
		if _, err := q.to.Write(line); err != nil {
			q.lost.Add(1) // the reader is gone, or the disk is full
		}
		q.mu.Lock()
		q.bytes -= len(line) + lineCost
		q.mu.Unlock()
	}
	if missing > 0 {
		_, _ = q.to.Write(note(missing)) // the metric still has the number
	}
	return len(lines) > 0 || missing > 0
}

// ended reports whether the queue is closed and empty.
func (q *logQueue) ended() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closing && len(q.lines) == 0 && q.missing == 0
}

// close waits until the lines are written, at most for patience. A reader that has stopped does not keep a process.
func (q *logQueue) close(patience time.Duration) {
	q.mu.Lock()
	q.closing = true
	q.wakeUp()
	q.mu.Unlock()
	over := time.NewTimer(patience)
	defer over.Stop()
	select {
	case <-q.done:
	case <-over.C:
	}
}
