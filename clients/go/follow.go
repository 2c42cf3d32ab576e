package procaas

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Follow returns the states of a run: the present one, one after each saved step, and the end. It connects again if the connection
// breaks. An error is the last element.
func (c *Client) Follow(ctx context.Context, id string) iter.Seq2[Run, error] {
	return func(yield func(Run, error) bool) {
		for attempt := 1; ; attempt++ {
			heard, over, err := c.stream(ctx, id, func(r Run) bool { return yield(r, nil) })
			if over {
				return
			}
			if heard {
				attempt = 1
			}
			if attempt >= c.o.Attempts || !passes(ctx, err) || pause(ctx, attempt, err) != nil {
				yield(Run{}, err)
				return
			}
		}
	}
}

// stream reads one connection. over says that the run has ended, or that nobody wants more.
func (c *Client) stream(ctx context.Context, id string, each func(Run) bool) (heard, over bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silent := time.AfterFunc(silentAtMost, cancel)
	defer silent.Stop()
	reply, err := c.send(ctx, request{method: http.MethodGet, path: "/v1/runs/" + url.PathEscape(id) + "/progress"}, nil)
	if err != nil {
		return false, false, err
	}
	defer reply.Body.Close()
	event := ""
	for lines := bufio.NewReader(reply.Body); ; {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // the end of a run is an event
		}
		if err != nil {
			return heard, false, fmt.Errorf("follow the run %s: %w", id, err)
		}
		silent.Reset(silentAtMost)
		field, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ": ")
		switch field {
		case "event":
			event = value
		case "data":
			var r Run
			if err := json.Unmarshal([]byte(value), &r); err != nil {
				return heard, false, fmt.Errorf("follow the run %s: %w", id, err)
			}
			heard = true
			if !each(r) || event == "end" {
				return heard, true, nil
			}
		}
	}
}
