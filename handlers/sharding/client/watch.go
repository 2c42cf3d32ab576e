package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"procaas/engine/clock"
)

const (
	// acceptNews asks for a stream of events. A server that has none yet answers in JSON after
	// some seconds, whether there is news or not, and is asked again.
	acceptNews = "text/event-stream, application/json;q=0.5"

	// watchSilence is how long a stream may be silent before it is taken for dead: three times
	// what a server lets pass between two signs of life.
	watchSilence = 45 * time.Second

	// watchAgain is the pause after a stream that has ended in good order, as when its node
	// stops, and watchPause the one after a failure.
	watchAgain = 50 * time.Millisecond
	watchPause = time.Second
)

// Watch forgets the answers about placements that change, until ctx ends. Without it an
// answer is kept for its time.
func (c *Client) Watch(ctx context.Context) {
	for after := ""; ctx.Err() == nil; {
		err := c.follow(ctx, &after)
		switch {
		case err == nil:
		case errors.Is(err, errEnded):
			clock.Pause(ctx, watchAgain)
		case ctx.Err() == nil:
			// Nobody tells of changes now, so any answer may be old.
			c.forget(true)
			clock.Pause(ctx, watchPause)
		}
	}
}

// errEnded reports that the server has ended a stream: it goes on at the same position.
var errEnded = errors.New("the stream has ended")

// changes are what the server tells of a map.
type changes struct {
	Next  string `json:"next"`  // the position behind them
	Reset bool   `json:"reset"` // anything may have changed
	Items []struct {
		Placement string `json:"placement"`
	} `json:"items"`
}

// follow takes over what changes behind a position, and moves that on: for as long as a stream
// lasts, or once where the server has none.
func (c *Client) follow(ctx context.Context, after *string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	alive := time.AfterFunc(watchSilence, cancel)
	defer alive.Stop()
	endless := *c.HTTP
	endless.Timeout = 0
	reply, err := c.send(ctx, &endless, "/watch?"+url.Values{"after": {*after}}.Encode(), acceptNews)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if !strings.HasPrefix(reply.Header.Get("Content-Type"), "text/event-stream") {
		var news changes
		if err := decode(reply, &news); err != nil {
			return err
		}
		c.learn(news, after)
		return nil
	}
	return events(reply.Body, func() { alive.Reset(watchSilence) }, func(data []byte) error {
		var news changes
		if err := json.Unmarshal(data, &news); err != nil {
			return fmt.Errorf("watch the shard map: %w", err)
		}
		c.learn(news, after)
		return nil
	})
}

// learn forgets the answers that changes have made old.
func (c *Client) learn(news changes, after *string) {
	placements := make([]string, len(news.Items))
	for i, item := range news.Items {
		placements[i] = item.Placement
	}
	if news.Reset || len(placements) > 0 {
		c.forget(news.Reset, placements...)
	}
	*after = news.Next
}

// events reads a stream to its end: it tells of each line, and takes the data of each event.
func events(stream io.Reader, line func(), take func(data []byte) error) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxAnswer)
	var data []byte
	for lines.Scan() {
		line()
		text := lines.Bytes()
		if more, ok := bytes.CutPrefix(text, []byte("data:")); ok {
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(more, []byte(" "))...)
			continue
		}
		if len(text) > 0 || data == nil {
			continue // comments, names and ids: the position is in the data as well
		}
		if err := take(data); err != nil {
			return err
		}
		data = nil
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("watch the shard map: %w", err)
	}
	return errEnded
}
