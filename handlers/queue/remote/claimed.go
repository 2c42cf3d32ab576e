package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"procaas/dsl/datum"
	"procaas/engine/model"
)

// A claim may return a thousand tasks, so its reply does not go through reflection.

// AppendJSON implements [rest.Appender].
func (c Claimed) AppendJSON(b []byte) []byte {
	b = append(slices.Grow(b, usualTask*len(c.Items)), `{"items":[`...)
	for i := range c.Items {
		if i > 0 {
			b = append(b, ',')
		}
		b = c.Items[i].appendJSON(b)
	}
	b = append(b, ']')
	if len(c.Lost) > 0 {
		b = append(append(b, `,"lost":`...), model.EncodeJSON(c.Lost)...)
	}
	return append(b, '}')
}

// usualTask is about how long an encoded task is, in bytes.
const usualTask = 384

func (t *QueuedTask) appendJSON(b []byte) []byte {
	b = model.AppendText(append(b, `{"id":`...), t.ID)
	b = model.AppendText(append(b, `,"type":`...), t.Type)
	b = model.AppendText(append(b, `,"state":`...), t.State)
	if len(t.Payload) > 0 {
		b = appendCompact(append(b, `,"payload":`...), t.Payload)
	}
	b = appendGiven(b, `,"key":`, t.Key)
	b = appendGiven(b, `,"unique":`, t.Unique)
	b = strconv.AppendInt(append(b, `,"priority":`...), int64(t.Priority), 10)
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(t.Attempt), 10)
	b = datum.AppendTime(append(b, `,"due":`...), t.Due)
	b = datum.AppendTime(append(b, `,"deadline":`...), t.Deadline)
	if t.Ended != nil {
		b = datum.AppendTime(append(b, `,"ended":`...), *t.Ended)
	}
	b = appendGiven(b, `,"worker":`, t.Worker)
	b = appendGiven(b, `,"error":`, t.Error)
	if t.Timeout != 0 {
		b = append(append(b, `,"timeout":`...), model.EncodeJSON(t.Timeout)...)
	}
	if t.Until != nil {
		b = datum.AppendTime(append(b, `,"until":`...), *t.Until)
	}
	b = appendGiven(b, `,"receipt":`, t.Receipt)
	return append(b, '}')
}

// appendGiven appends a member, unless it is empty.
func appendGiven(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	return model.AppendText(append(b, name...), text)
}

// appendCompact appends the payload of a task without spaces between its parts. A payload that is no JSON is damaged.
func appendCompact(b []byte, payload json.RawMessage) []byte {
	to := bytes.NewBuffer(b)
	if err := json.Compact(to, payload); err != nil {
		panic(fmt.Errorf("encode the payload of a task: %w", err))
	}
	return to.Bytes()
}
